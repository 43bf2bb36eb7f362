// node tokens.mjs MODEL.gguf CASES TOKENS: what a model says at temperature 0 on one thread, as token numbers. CASES are
// context/batch/flash (on, off), with commas between. Each case is named on the error stream too, so that what the drop-in
// says there can be told apart.

import {getLlama} from "node-llama-cpp";

const [path, cases, count] = process.argv.slice(2);
const story = "The ship sailed from the harbour with a hold full of barrels, and nobody on board knew what was in them. ";
const prompts = [
    "The capital of France is",
    "def fibonacci(n):\n",
    story.repeat(6) + "On the third day the cook opened one of them, and"
];

const llama = await getLlama({gpu: false, build: "never", progressLogs: false, skipDownload: true, maxThreads: 1});
const model = await llama.loadModel({modelPath: path});
for (const name of cases.split(",")) {
    const [contextSize, batchSize, flash] = name.split("/");
    console.error(`case: ${name}`);
    const context = await model.createContext({
        contextSize: Number(contextSize), batchSize: Number(batchSize), flashAttention: flash === "on", threads: 1
    });
    const sequence = context.getSequence();
    for (const prompt of prompts) {
        await sequence.clearHistory();
        const tokens = [];
        for await (const token of sequence.evaluate(model.tokenize(prompt), {temperature: 0})) {
            tokens.push(token);
            if (tokens.length >= Number(count))
                break;
        }
        console.log(JSON.stringify({case: name, prompt: prompt.slice(-20), tokens}));
    }
    await context.dispose();
}
// Without this, some versions wait for threads that never end.
process.exit(0);
