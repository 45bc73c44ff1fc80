// Prefill and decode by node-llama-cpp, whose package has a build of ggml for each kind of processor and takes the best.
// node node.mjs FOLDER FILE PREFILL DECODE THREADS: FOLDER is where `npm install node-llama-cpp` was run.
import {createRequire} from "node:module";
import {pathToFileURL} from "node:url";

const [,, folder, file, prefill, decode, threads] = process.argv;
const place = createRequire(`${folder}/package.json`).resolve("node-llama-cpp");
const {getLlama, LlamaLogLevel} = await import(pathToFileURL(place));
const llama = await getLlama({gpu: false, logLevel: LlamaLogLevel.error, build: "never", progressLogs: false});
const model = await llama.loadModel({modelPath: file});
const [many, next] = [Number(prefill), Number(decode)];
const context = await model.createContext(
  {contextSize: many + next + 64, batchSize: Math.max(many, 64), threads: Number(threads)});
const sequence = context.getSequence();
const ids = Array.from({length: many}, (_, n) => 300 + (n * 7919) % 40000);

async function timed(tokens, most) {
  const [cpu, wall] = [process.cpuUsage(), performance.now()];
  let last = null, made = 0;
  for await (const token of sequence.evaluate(tokens, {temperature: 0})) {
    last = token;
    if (++made >= most) break;
  }
  const used = process.cpuUsage(cpu);
  return {last, cpu: (used.user + used.system) / 1000 / made, wall: (performance.now() - wall) / made};
}

const rounds = [];
for (let round = 0; round < 3; round++) {
  await sequence.clearHistory();
  const read = await timed(ids, 1);
  rounds.push({prefill: read, decode: await timed([read.last], next)});
}
console.log(JSON.stringify({build: llama.systemInfo, rounds}));
process.exit(0);
