import type { OperationView } from "holdfast-client";
import { expect, test } from "vitest";
import { CAREFUL, aboutOf, causesOf, describe, ownersOf, perMinute, readFilter, readPlan, sentenceOf, skippedWords, standing, toApi } from "../src/dead.ts";

const NOW = Date.parse("2026-11-20T12:00:00Z");
const group = (given: object) => ({ fingerprint: "f1", task: "convert", code: "NETWORK", message: "", count: 1, first_at: "2026-11-20T08:00:00Z", last_at: "2026-11-20T11:00:00Z", sample: "1", ...given });
const plan = (given: object) => readPlan({ ...CAREFUL, ...given }, true);
const operation = (given: object) => ({ options: { canary: 5, ramp_from: 10 / 60 }, rate: 200 / 60, done: 5, ended: 3, failed_again: 0, current_rate: null, next_at: null, phase: null, ...given }) as unknown as OperationView;

test("the address is the filter, of the list and of the plan", () => {
  const { filter } = readFilter(new URLSearchParams("code=NETWORK&task=convert&cause=abc&owner=acme&age=%3E1h&other=1"));
  expect(toApi(filter, NOW)).toEqual({ code: ["NETWORK"], task: ["convert"], fingerprint: "abc", owner: "acme", died_before: "2026-11-20T11:00:00.000Z" });
  expect(describe(filter)).toBe("code NETWORK, cause abc, task convert, owner acme, age >1h");
  expect(toApi({ age: "<30m" }, NOW)).toEqual({ died_after: "2026-11-20T11:30:00.000Z" });
  expect(describe({})).toBe("all dead letters");
});

test("an age that cannot be read is said, and never ignored", () => {
  for (const age of ["1h", ">", ">soon", "<script>"]) expect(readFilter(new URLSearchParams({ age })).problem).toContain(age);
});

test("causes are of the filter, the largest first", () => {
  const groups = [group({}), group({ fingerprint: "f2", count: 9, first_at: "2026-11-20T11:40:00Z", last_at: "2026-11-20T11:50:00Z" })];
  const found = (filter: object) => causesOf(groups, filter, NOW).map((one) => one.fingerprint);
  expect(found({})).toEqual(["f2", "f1"]);
  expect(found({ cause: "f1" })).toEqual(["f1"]);
  expect(found({ age: "<30m" })).toEqual(["f2"]);
  expect(found({ age: ">1h" })).toEqual(["f1"]);
});

test("the sentence counts, and says where it has stopped to count", () => {
  const is = { isCut: false, isFiltered: false };
  expect(sentenceOf([], NOW, is)).toBe("No job has failed for good.");
  expect(sentenceOf([], NOW, { ...is, isFiltered: true })).toBe("No dead letter matches.");
  expect(sentenceOf([group({})], NOW, is)).toBe("1 job has failed for good, by 1 cause, the last 1 h ago.");
  expect(sentenceOf([group({ count: 1200 }), group({})], NOW, { ...is, isCut: true })).toBe("1,201+ jobs have failed for good, by 2+ causes, the last 1 h ago. Most are NETWORK in convert: 1,200.");
});

test("owners are counted, the most first", () => {
  expect(ownersOf([{ owner: "a" }, { owner: null }, { owner: "b" }, { owner: "b" }])).toEqual([["b", 2], ["a", 1]]);
});

test("a plan is written by the minute and in percent, and sent by the second and as a share", () => {
  expect(plan({})).toEqual({ options: { canary: 5, ramp_from: 10 / 60, rate: 200 / 60, stop_above: 0.2 }, problems: {} });
  expect(plan({ canary: "", rampFrom: "", rate: "", stopAbove: "0", queue: " repairs ", patch: '{"a":null}', reason: "fixed" }).options).toEqual({ stop_above: 0, to_queue: "repairs", patch: { a: null }, reason: "fixed" });
});

test("each mistake in a plan is said at its field", () => {
  for (const canary of ["0", "1.5", "501", "many"]) expect(Object.keys(plan({ canary }).problems)).toEqual(["canary"]);
  for (const rate of ["-1", "0", "Infinity"]) expect(Object.keys(plan({ rampFrom: "", rate }).problems)).toEqual(["rate"]);
  expect(plan({ rampFrom: "300" }).problems.rampFrom).toContain("below its end");
  expect(plan({ rate: "" }).problems.rate).toContain("where the ramp ends");
  expect(plan({ stopAbove: "101" }).problems.stopAbove).toContain("0 to 100");
  for (const patch of ["{", "[]", "null", "1", "{}"]) expect(plan({ patch }).problems.patch).toBeDefined();
  expect(readPlan({ ...CAREFUL, patch: '{"a":1}' }, false).problems.patch).toContain("filter by a task");
});

test("a running plan says where it stands and what is next", () => {
  expect(standing(operation({ phase: "canary" }), NOW)).toBe("Canary: 3 of 5 have ended; the others wait for these.");
  expect(standing(operation({ phase: "ramp", current_rate: 20 / 60, next_at: "2026-11-20T12:00:03Z" }), NOW)).toBe("Ramp: 20 a minute, the next in 3 s; the rate doubles each minute up to 200 a minute.");
  expect(standing(operation({ phase: "steady", current_rate: 200 / 60 }), NOW)).toBe("At the full rate, 200 a minute.");
  expect(standing(operation({ phase: "watching" }), NOW)).toBe("All were moved; 2 have not ended.");
  expect(perMinute(0.001)).toBe("0.06 a minute");
});

test("a plan says which jobs it is for and what it changes", () => {
  const given = { filter: { code: ["A", "B"], task: ["convert"] }, options: { to_queue: "repairs", patch: { pages: 3 } } };
  expect(aboutOf(operation(given))).toBe("code A or B, task convert, to queue repairs, changes pages");
  expect(aboutOf(operation({ filter: { ids: ["1", "2"] }, options: {} }))).toBe("2 chosen jobs");
  expect(aboutOf(operation({ filter: {}, options: {} }))).toBe("all");
});

test("an unknown reason is shown as it is", () => {
  expect(skippedWords({ arguments: 2, CREDITS: 1 })).toEqual(["2 have arguments that do not fit the task", "1 were refused: CREDITS"]);
});
