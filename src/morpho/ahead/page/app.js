// The page: what is typed goes to the worker, and its text into the page as it comes.

const get = (id) => document.getElementById(id);
const worker = new Worker("worker.js", {type: "module"});
const messages = [];
let site, answer;

function turn(role, text) {
    const box = document.createElement("section");
    box.className = role;
    box.textContent = text;
    get("talk").append(box);
    box.scrollIntoView({block: "end"});
    return box;
}

function busy(is) {
    get("send").disabled = is;
    get("stop").disabled = !is;
    document.body.dataset.busy = is;
}

worker.onmessage = ({data}) => {
    if (data.progress !== undefined) get("state").textContent = `Loading, ${Math.round(100 * data.progress)} %`;
    if (data.ready) {
        site = data.ready;
        get("name").textContent = document.title = site.name;
        get("state").textContent = "Ready. Everything runs in this page.";
        get("temperature").value = site.temperature;
        busy(false);
    }
    if (data.text) answer.textContent += data.text;
    if (data.done) {
        messages.push({role: "assistant", content: answer.textContent});
        get("state").textContent = `${data.count} tokens in ${data.seconds.toFixed(1)} s`;
        busy(false);
    }
    if (data.error) {
        turn("error", data.error);
        get("state").textContent = "Failed";
        if (site) busy(false);
    }
};
worker.onerror = () => { get("state").textContent = "The worker failed to start: serve the folder over HTTP, with morpho serve --static"; };

get("form").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = get("prompt").value;
    const request = {tokens: Number(get("tokens").value), temperature: Number(get("temperature").value),
                     top_k: site.top_k, top_p: site.top_p, penalty: site.penalty};
    if (get("seed").value !== "") request.seed = Number(get("seed").value);
    turn("user", text);
    answer = turn("assistant", "");
    if (site.chat) {
        messages.push({role: "user", content: text});
        request.messages = messages.slice();
    } else request.text = text;
    get("prompt").value = "";
    busy(true);
    worker.postMessage({ask: request});
});
get("stop").addEventListener("click", () => worker.postMessage({stop: true}));
worker.postMessage({load: true});
