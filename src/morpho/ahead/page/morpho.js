// Exported functions in a page: memory for their buffers, and calls by name. One Library is one WebAssembly instance.

const PAGE = 65536;
const LINE = 64;
const CODES = {1: "a buffer has another size", 2: "an address is not aligned", 3: "a size lies outside its bounds",
               4: "the workspace is too small", 5: "the weights are not those of this library",
               16: "an index lies outside its axis"};
const ARRAYS = {float32: Float32Array, float64: Float64Array, int64: BigInt64Array, uint64: BigUint64Array,
                int32: Int32Array, uint32: Uint32Array, int16: Int16Array, uint16: Uint16Array, int8: Int8Array,
                uint8: Uint8Array, bool: Uint8Array, float16: Uint16Array, bfloat16: Uint16Array};

// Whether the engine has relaxed SIMD and rounds a product and a sum once: then the bits are Python's.
export function fuses(bytes) {
    if (!WebAssembly.validate(bytes)) return false;
    const probe = new WebAssembly.Instance(new WebAssembly.Module(bytes), {}).exports.morpho_fused_probe;
    const one = 1 + 2 ** -12;
    return probe !== undefined && probe(one, one, -(1 + 2 ** -11)) === 2 ** -24;
}

export class Library {
    constructor(bytes, manifest) {
        this.exports = new WebAssembly.Instance(new WebAssembly.Module(bytes), {}).exports;
        this.manifest = manifest;
        this.end = this.exports.__heap_base.value;
        this.states = new Map();
        this.weights = [0, 0];
        this.workspace = [0, 0];
    }

    // The first module that runs here with Python's bits.
    static choose(modules, manifest) {
        const bytes = modules.find((each) => each.exact || fuses(each.bytes));
        if (!bytes) throw new Error("no module runs in this browser");
        return new Library(bytes.bytes, manifest);
    }

    take(bytes) {
        const at = Math.ceil(this.end / LINE) * LINE;
        this.end = at + bytes;
        const missing = this.end - this.exports.memory.buffer.byteLength;
        if (missing > 0) this.exports.memory.grow(Math.ceil(missing / PAGE));
        return at;
    }

    bytes(at, length) {
        return new Uint8Array(this.exports.memory.buffer, at, length);
    }

    // Weights piece by piece, from an async iterable of Uint8Array; they are compared with the library's digest.
    async load(pieces, report = () => {}) {
        const total = Object.values(this.manifest.functions)[0].weights_bytes;
        const at = this.take(total);
        let filled = 0;
        for await (const piece of pieces) {
            if (filled + piece.length > total) throw new Error("the weights file is too long");
            this.bytes(at + filled, piece.length).set(piece);
            filled += piece.length;
            report(filled, total);
        }
        const check = this.exports[`${this.manifest.name}_check_weights`];
        if (filled !== total || check(at, BigInt(total)) !== 0) throw new Error("the weights file is damaged or of another library");
        this.weights = [at, total];
    }

    // A function of typed arrays by name, which gives its results by name. Arrays that it takes are copied in.
    function(name) {
        const figures = this.manifest.functions[name];
        const places = figures.fields.map((field) => {
            if (field.role !== "state") return this.take(field.bytes);
            if (!this.states.has(field.name)) this.states.set(field.name, this.take(field.bytes));
            return this.states.get(field.name);
        });
        if (figures.workspace_bytes > this.workspace[1]) {
            this.workspace = [this.take(figures.workspace_bytes), figures.workspace_bytes];
        }
        const record = this.take(8 * figures.words);
        const symbols = Object.keys(figures.symbols);
        return (inputs, sizes = {}) => {
            const lengths = figures.fields.map((field) => field.terms.reduce((sum, [coefficient, ...names]) =>
                sum + names.reduce((product, each) => product * sizes[each], coefficient), 0));
            const words = [];
            figures.fields.forEach((field, i) => {
                if (field.role === "input") {
                    const given = inputs[field.name];
                    if (given.byteLength !== lengths[i]) throw new Error(`${field.name} has ${given.byteLength} bytes, not ${lengths[i]}`);
                    this.bytes(places[i], lengths[i]).set(new Uint8Array(given.buffer, given.byteOffset, given.byteLength));
                }
                words.push(places[i], lengths[i]);
            });
            if (figures.weights_bytes) words.push(...this.weights);
            words.push(...this.workspace, ...symbols.map((each) => sizes[each]), 0);
            new BigInt64Array(this.exports.memory.buffer, record, words.length).set(words.map(BigInt));
            const status = this.exports[name](record);
            if (status) throw new Error(`${name}: ${CODES[status & 255] || `status ${status}`}`);
            const results = {};
            figures.fields.forEach((field, i) => {
                if (field.role !== "output") return;
                const kind = ARRAYS[field.dtype];
                results[field.name] = new kind(this.exports.memory.buffer, places[i], lengths[i] / kind.BYTES_PER_ELEMENT);
            });
            return results;
        };
    }

    // Every state zero, as when the library was loaded.
    reset() {
        for (const [name, at] of this.states) {
            const field = Object.values(this.manifest.functions).flatMap((each) => each.fields).find((each) => each.name === name);
            this.bytes(at, field.bytes).fill(0);
        }
    }
}
