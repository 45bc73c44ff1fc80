// Byte-level BPE as tokenizer.json describes it, with the stages that the export checked.

const BYTES = (() => { // GPT-2's printable characters for bytes
    const kept = [];
    for (let i = 33; i < 127; i++) kept.push(i);
    for (let i = 161; i < 173; i++) kept.push(i);
    for (let i = 174; i < 256; i++) kept.push(i);
    const known = new Set(kept), table = new Array(256);
    let next = 256;
    for (let i = 0; i < 256; i++) table[i] = String.fromCodePoint(known.has(i) ? i : next++);
    return table;
})();
const VALUES = new Map(BYTES.map((character, value) => [character, value]));
const MOST_CACHED = 20000;

export class Tokenizer {
    constructor(file, settings) {
        const model = file.model;
        this.vocabulary = new Map(Object.entries(model.vocab));
        this.ranks = new Map(model.merges.map((pair, rank) => [typeof pair === "string" ? pair : pair.join(" "), rank]));
        this.whole = Boolean(model.ignore_merges);
        this.stages = settings.stages.map((pattern) => new RegExp(pattern, "gu"));
        this.space = settings.add_prefix_space;
        this.form = settings.normal_form;
        this.added = new Map(file.added_tokens.map((each) => [each.content, each]));
        this.names = [];
        for (const [text, id] of this.vocabulary) this.names[id] = text;
        this.byId = new Map(file.added_tokens.map((each) => [each.id, each]));
        const texts = [...this.added.keys()].sort((a, b) => b.length - a.length);
        this.special = texts.length ? new RegExp(texts.map((text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|"), "gu") : null;
        this.cache = new Map();
    }

    encode(text, specials = true) {
        const ids = [];
        let from = 0;
        if (specials && this.special) {
            for (const match of text.matchAll(this.special)) {
                this.plain(text.slice(from, match.index), ids);
                ids.push(this.added.get(match[0]).id);
                from = match.index + match[0].length;
            }
        }
        this.plain(text.slice(from), ids);
        return ids;
    }

    plain(text, ids) {
        if (!text) return;
        let words = [this.form ? text.normalize(this.form) : text];
        if (this.space && !words[0].startsWith(" ")) words[0] = " " + words[0];
        for (const stage of this.stages) words = words.flatMap((word) => split(word, stage));
        const encoder = new TextEncoder();
        for (const word of words) {
            const known = this.cache.get(word);
            const found = known || this.merge(Array.from(encoder.encode(word), (byte) => BYTES[byte]));
            if (!known && this.cache.size < MOST_CACHED) this.cache.set(word, found);
            for (const id of found) ids.push(id);
        }
    }

    merge(parts) {
        if (this.whole) {
            const id = this.vocabulary.get(parts.join(""));
            if (id !== undefined) return [id];
        }
        while (parts.length > 1) {
            let best = Infinity;
            for (let i = 0; i + 1 < parts.length; i++) {
                const rank = this.ranks.get(`${parts[i]} ${parts[i + 1]}`);
                if (rank !== undefined && rank < best) best = rank;
            }
            if (best === Infinity) break;
            const joined = [];
            for (let i = 0; i < parts.length; i++) {
                if (i + 1 < parts.length && this.ranks.get(`${parts[i]} ${parts[i + 1]}`) === best) joined.push(parts[i] + parts[++i]);
                else joined.push(parts[i]);
            }
            parts = joined;
        }
        return parts.map((part) => {
            const id = this.vocabulary.get(part);
            if (id === undefined) throw new Error(`the tokenizer has no token for ${part}`);
            return id;
        });
    }

    // Text of tokens as they come: characters cut in two wait for their other half. Special tokens have no text.
    decoder() {
        const decoder = new TextDecoder("utf-8");
        return {
            push: (id) => {
                const added = this.byId.get(id);
                if (added) return added.special ? "" : decoder.decode(new TextEncoder().encode(added.content), {stream: true});
                const values = Uint8Array.from(this.names[id] || "", (character) => VALUES.get(character));
                return decoder.decode(values, {stream: true});
            },
            end: () => decoder.decode(),
        };
    }
}

// A word at the matches of a pattern; what lies between them is kept.
function split(word, pattern) {
    const found = [];
    let from = 0;
    for (const match of word.matchAll(pattern)) {
        if (!match[0]) continue;
        if (match.index > from) found.push(word.slice(from, match.index));
        found.push(match[0]);
        from = match.index + match[0].length;
    }
    if (from < word.length) found.push(word.slice(from));
    return found;
}
