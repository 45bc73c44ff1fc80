// The model in a thread of its own, so that the page stays alive. Messages: {load}, {ask: request}, {stop}.

import {Library} from "./morpho.js";
import {Model} from "./text.js";
import {Tokenizer} from "./tokenizer.js";

let model, stopped = false;

async function bytes(name) {
    const answer = await fetch(name);
    if (!answer.ok) throw new Error(`${name}: ${answer.status} ${answer.statusText}`);
    return answer;
}

async function* pieces(answer) {
    const reader = answer.body.getReader();
    for (;;) {
        const {done, value} = await reader.read();
        if (done) return;
        yield value;
    }
}

async function load() {
    const site = await (await bytes("site.json")).json();
    const manifest = await (await bytes("model.json")).json();
    const file = await (await bytes("tokenizer.json")).json();
    const quick = new Uint8Array(await (await bytes("model.wasm")).arrayBuffer());
    const exact = new Uint8Array(await (await bytes("model-exact.wasm")).arrayBuffer());
    const library = Library.choose([{bytes: quick}, {bytes: exact, exact: true}], manifest);
    await library.load(pieces(await bytes("model.safetensors")), (filled, total) => postMessage({progress: filled / total}));
    model = new Model(library, new Tokenizer(file, site.tokenizer), site);
    postMessage({ready: site});
}

async function ask(request) {
    stopped = false;
    const begun = performance.now();
    let count = 0;
    for (const {token, text} of model.answer(request)) {
        if (token >= 0) count++;
        postMessage({token, text});
        await new Promise((resolve) => setTimeout(resolve, 0)); // so that "stop" is read
        if (stopped) break;
    }
    postMessage({done: true, count, seconds: (performance.now() - begun) / 1000});
}

onmessage = async ({data}) => {
    try {
        if (data.load) await load();
        else if (data.ask) await ask(data.ask);
        else if (data.stop) stopped = true;
    } catch (error) {
        postMessage({error: String(error.message || error)});
    }
};
