// Run by tests/client/test_typescript.py against a live API: `node live.mjs SCENE`, with its input as JSON on stdin.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { BadAnswer, Client, ClientError, Problem, Unreachable } from "../client.js";

const given = JSON.parse(readFileSync(0, "utf8"));
const pauses = [];
const hurried = (seconds) => {
  pauses.push(seconds);
  return new Promise((resolve) => setTimeout(resolve, Math.min(seconds, 0.02) * 1000));
};
const client = new Client(given.url, { key: given.key, sleep: hurried });
const say = (value) => console.log(JSON.stringify(value));

const refused = async (work) => {
  try {
    await work;
  } catch (error) {
    return error;
  }
  return assert.fail("it was not refused");
};

const scenes = {
  async operations() {
    for (const { name, given: args } of given.uses) {
      const answer = await client[name](...args);
      say([name, answer === undefined ? "nothing" : typeof answer]);
    }
  },

  async verbs() {
    const owner = `ts-${crypto.randomUUID()}`;
    const made = await client.enqueue("convert", { pdf: "a.pdf", pages: 2 }, { owner, tags: ["ts"] });
    assert.equal(made.state, "queued");
    assert.equal((await client.wait(made.id, { timeoutSeconds: 20 })).state, "complete");
    assert.equal(await client.result(made.id, { timeoutSeconds: 20 }), "a.pdf:2");

    await client.enqueueJobs({ jobs: Array.from({ length: 4 }, () => ({ task: "convert", args: { pdf: "x" }, owner })) });
    const ids = [];
    for await (const job of client.jobs({ owner, limit: 2 })) {
      ids.push(job.id);
    }
    assert.equal(new Set(ids).size, 5);

    const bad = await client.enqueue("refuse", { why: "ts" }, { owner });
    await client.wait(bad.id, { timeoutSeconds: 20 });
    const failed = await refused(client.result(bad.id));
    assert.ok(failed instanceof Problem && failed instanceof ClientError);
    assert.deepEqual([failed.code, failed.status], ["JOB_FAILED", 409]);
    const letters = [];
    for await (const letter of client.deadLetters({ owner, limit: 1 })) {
      letters.push(letter.id);
    }
    assert.deepEqual(letters, [bad.id]);

    const waiting = await client.enqueue("convert", { pdf: "w" }, { delay: "1d" });
    const late = await refused(client.wait(waiting.id, { timeoutSeconds: 0.05 }));
    assert.match(late.message, /still queued/);
    const [{ id: after }] = (await client.getJobEvents(waiting.id)).events;
    await client.cancelJob(waiting.id);
    for await (const event of client.events({ after, jobId: waiting.id })) {
      assert.deepEqual([event.kind, event.job_id, event.task], ["cancelled", waiting.id, "convert"]);
      break;
    }
    for await (const event of client.events({ after: "9".repeat(25) })) {
      assert.equal(event.kind, "reset");
      break;
    }
    const stop = new AbortController();
    const silent = client.events({ kind: "late_result", signal: stop.signal }).next();
    setTimeout(() => stop.abort(), 50);
    assert.equal((await refused(silent)).name, "AbortError");
  },

  async refusals() {
    const nobody = new Client(given.url, { key: "hf_wrong" });
    assert.equal((await refused(nobody.listQueues())).code, "UNAUTHENTICATED");
    assert.equal((await refused(nobody.events().next())).code, "UNAUTHENTICATED");
    assert.equal((await refused(client.getJob("a/../b?c#d"))).code, "NOT_FOUND");
    assert.throws(() => client.getJob(".."), TypeError);
    assert.equal((await refused(client.enqueue("nothing"))).code, "UNKNOWN_TASK");
    for (const url of ["jobs", "ftp://a", "http://u:canary@a", "http://a?x=1"]) {
      assert.throws(() => new Client(url), (error) => error instanceof TypeError && !/canary/.test(error.message));
    }
    assert.equal(new Client("http://a/x/api/v1/").url, "http://a/x");
    const away = new Client(`http://127.0.0.1:${given.closed}`, { sleep: hurried });
    assert.ok((await refused(away.cancelJob("x"))) instanceof Unreachable);
    assert.equal(pauses.length, 4); // nothing was sent, so even this was repeated
  },

  // The proxy loses two responses to this request.
  async lost() {
    const made = await client.enqueue("convert", { pdf: "a" }, { owner: given.owner });
    say({ id: made.id, pauses });
  },

  // The proxy answers this request once, as the test has set it.
  async trouble() {
    try {
      await (given.named ? client.enqueue("convert", { pdf: "a" }) : client.removeWebhook(given.webhook));
      say({ done: true, pauses });
    } catch (error) {
      assert.ok(error instanceof Unreachable || error instanceof Problem || error instanceof BadAnswer, String(error));
      say({ done: false, error: error.name, pauses });
    }
  },

  async follow() {
    for await (const event of client.events({ after: given.after, owner: given.owner, kind: ["queued"] })) {
      say(event.job_id);
    }
  },
};

await scenes[process.argv[2]]();
