// Text from a model: a prompt through `prefill`, then a token at a time through `decode`, chosen as `morpho run` does.

// The next token. Temperature 0 takes the likeliest, of equal ones the first; otherwise one of the top k, and of the
// likeliest that together have the probability top_p, is drawn.
export function choose(logits, seen, options, random) {
    const scores = Float64Array.from(logits);
    const penalty = options.penalty || 1;
    if (penalty !== 1) for (const id of seen) scores[id] = scores[id] < 0 ? scores[id] * penalty : scores[id] / penalty;
    let most = 0;
    for (let i = 1; i < scores.length; i++) if (scores[i] > scores[most]) most = i;
    if (!options.temperature) return most;
    const order = Array.from(scores.keys()).sort((a, b) => scores[b] - scores[a] || a - b);
    const count = Math.min(options.top_k || order.length, order.length);
    const powers = order.slice(0, count).map((i) => Math.exp((scores[i] - scores[most]) / options.temperature));
    const total = powers.reduce((sum, each) => sum + each, 0);
    let kept = 0, mass = 0;
    while (kept < powers.length && (kept === 0 || mass < (options.top_p || 1) * total)) mass += powers[kept++];
    let height = random() * mass;
    for (let i = 0; i < kept; i++) {
        height -= powers[i];
        if (height < 0) return order[i];
    }
    return order[kept - 1];
}

// Numbers from 0 to 1 that follow from a seed (xorshift32).
export function generator(seed) {
    let state = (Math.imul(seed | 0, 0x9e3779b1) ^ 0x85ebca6b) >>> 0 || 1;
    return () => {
        state ^= state << 13; state >>>= 0;
        state ^= state >>> 17;
        state ^= state << 5; state >>>= 0;
        return state / 4294967296;
    };
}

export class Model {
    constructor(library, tokenizer, site) {
        this.tokenizer = tokenizer;
        this.site = site;
        this.prefill = library.function("prefill");
        this.decode = library.function("decode");
        this.ids = []; // what the cache holds
    }

    // The tokens of a prompt: the text itself, or messages in the model's chat template.
    prompt(request) {
        if (request.text !== undefined) return this.tokenizer.encode(request.text);
        const {first, between, last} = this.site.chat;
        const ids = [];
        request.messages.forEach((message, number) => {
            if (message.role === "user") ids.push(...this.tokenizer.encode(number ? between : first));
            ids.push(...this.tokenizer.encode(message.content, false));
            if (message.role === "user") ids.push(...this.tokenizer.encode(last));
        });
        return ids;
    }

    // Logits after a prompt; what it has in common with the last text is not computed again.
    start(prompt) {
        let same = 0;
        while (same < Math.min(this.ids.length, prompt.length - 1) && this.ids[same] === prompt[same]) same++;
        this.ids = prompt.slice(0, same);
        let logits;
        while (this.ids.length < prompt.length) {
            const part = prompt.slice(this.ids.length, this.ids.length + this.site.chunk);
            const ids = BigInt64Array.from(part, BigInt);
            logits = this.prefill({ids, position: BigInt64Array.of(BigInt(this.ids.length))}, {n: part.length}).out;
            this.ids.push(...part);
        }
        return logits;
    }

    // The tokens of an answer, each with its text.
    * answer(request) {
        const prompt = this.prompt(request);
        if (!prompt.length) throw new Error("the prompt is empty");
        if (prompt.length >= this.site.context) throw new Error(`the prompt has ${prompt.length} tokens, and the model takes ${this.site.context}`);
        const random = generator(request.seed ?? Math.floor(Math.random() * 2 ** 31));
        const seen = new Set(prompt), stops = new Set(this.site.stops), decoder = this.tokenizer.decoder();
        const most = Math.min(request.tokens, this.site.context - prompt.length);
        if (request.text !== undefined) for (const id of prompt) decoder.push(id);
        let logits = this.start(prompt);
        for (let made = 0; made < most; made++) {
            const token = choose(logits, seen, request, random);
            if (stops.has(token)) break;
            seen.add(token);
            yield {token, text: decoder.push(token)};
            if (made + 1 === most) break;
            logits = this.decode({ids: BigInt64Array.of(BigInt(token)), position: BigInt64Array.of(BigInt(this.ids.length))}).out;
            this.ids.push(token);
        }
        yield {token: -1, text: decoder.end()};
    }
}
