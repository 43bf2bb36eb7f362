// node --expose-gc alternate.mjs MODEL.gguf ROUNDS: contexts and prompt lengths by turns in one process, then contexts made
// and given up. The first output line has the resident memory, in bytes, after the first round and after the last one; the
// second line has it after eight of the short-lived contexts and after all of them. What was said goes below, a line for
// each prompt. The ends of the first round and of the last one are marked on the error stream.
//
// Resident memory says something only if freed memory goes back to the system at once:
// MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=65536 MALLOC_TRIM_THRESHOLD_=65536 has the GNU library do that.

import {getLlama} from "node-llama-cpp";

const [path, rounds] = process.argv.slice(2);
const shapes = [[256, 64, true], [512, 256, false], [512, 128, true], [1024, 256, true]];
const lengths = [1, 2, 3, 5, 8, 13, 21, 34, 55];
const text = "Once upon a time there was a ship whose hold was packed so tight that not a mouse could get in. ".repeat(20);

const llama = await getLlama({gpu: false, build: "never", progressLogs: false, skipDownload: true, maxThreads: 1});
const model = await llama.loadModel({modelPath: path});
const tokens = model.tokenize(text);

async function open([contextSize, batchSize, flashAttention]) {
    const context = await model.createContext({contextSize, batchSize, flashAttention, threads: 1});
    return {context, sequence: context.getSequence()};
}

async function say(sequence, length) {
    await sequence.clearHistory();
    const said = [];
    for await (const token of sequence.evaluate(tokens.slice(0, length), {temperature: 0})) {
        said.push(token);
        if (said.length >= 2)
            break;
    }
    return said.join(" ");
}

async function resident() {
    for (let i = 0; i < 3; i++) {
        globalThis.gc();
        await new Promise((resolve) => setTimeout(resolve, 50));
    }
    return process.memoryUsage.rss();
}

// Every pair of context and length once, in an order that differs from round to round.
function* pairs(round, contexts) {
    const count = contexts.length * lengths.length;
    const stride = [5, 7, 11, 13, 17, 19, 23, 25, 29, 31, 35][round % 11];
    for (let i = 0; i < count; i++) {
        const pair = (i * stride + round) % count;
        yield [contexts[pair % contexts.length], lengths[Math.floor(pair / contexts.length)]];
    }
}

const spoken = [];
const contexts = [];
for (const shape of shapes)
    contexts.push(await open(shape));
let first;
for (let round = 0; round < Number(rounds); round++) {
    for (const [{sequence}, length] of pairs(round, contexts))
        spoken.push(`${length}: ${await say(sequence, length)}`);
    if (round === 0) {
        first = await resident();
        console.error("first round done");
    }
}
console.error("last round done");
console.log(`${first} ${await resident()} ${spoken.length}`);

for (let i = 0; i < 40; i++) {
    const {context, sequence} = await open(shapes[i % shapes.length]);
    spoken.push(`short: ${await say(sequence, lengths[i % lengths.length])}`);
    await context.dispose();
    if (i === 7)
        first = await resident();
}
console.log(`${first} ${await resident()} 40`);
console.log(spoken.join("\n"));
process.exit(0);
