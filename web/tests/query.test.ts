import { expect, test } from "vitest";
import { complete, completed, jobIdIn, readQuery, toFilter, toListQuery, withTerm, withoutField, written } from "../src/query.ts";

const NOW = Date.parse("2026-11-20T12:00:00Z");

test("a query becomes the filter of the API", () => {
  const { terms, problems } = readQuery('state:failed state:queued queue:convert owner:"acme inc" error:GW_TIMEOUT arg.order:1001 age:>1h tag:nightly');
  expect(problems).toEqual([]);
  const query = toListQuery(terms, NOW);
  expect(query).toMatchObject({ state: ["failed", "queued"], queue: ["convert"], owner: "acme inc", error_code: "GW_TIMEOUT", tag: "nightly" });
  expect(query.arg).toEqual(["order=1001"]);
  expect(query.created_before).toBe("2026-11-20T11:00:00.000Z");
  expect(toFilter(terms, NOW)).toEqual({
    state: ["failed", "queued"],
    queue: ["convert"],
    owner: "acme inc",
    error_code: "GW_TIMEOUT",
    tag: "nightly",
    args: { order: 1001 },
    created_before: "2026-11-20T11:00:00.000Z",
  });
});

test("jobs younger than a time are those created after it", () => {
  expect(toListQuery(readQuery("age:<90m").terms, NOW).created_after).toBe("2026-11-20T10:30:00.000Z");
});

test.each([
  ["urgent", "has no field"],
  ["colour:red", 'no field "colour"'],
  ["state:dead", 'no state "dead"'],
  ["state:", "has no value"],
  ["age:1h", "age is"],
  ["age:>soon", "age is"],
  ["owner:a owner:b", "given twice"],
  ["internal:no", 'internal is "yes"'],
  [":x", "has no field"],
  ["arg.:1", 'no field "arg."'],
])("what cannot be understood says what to do: %s", (text, said) => {
  expect(readQuery(text).problems.join()).toContain(said);
});

test("every value can be written and read back", () => {
  for (const value of ["a", "a b", 'say "hi"', "back\\slash", "naïve:x", '"', "\\", "a\tb"]) {
    const term = { field: "task", value };
    expect(readQuery(written(term)).terms).toEqual([term]);
  }
});

test("hostile texts neither throw nor take long", () => {
  for (const text of ['"'.repeat(5000), "a:".repeat(5000), "\\".repeat(5000), "x".repeat(100_000), 'a:"\\'.repeat(2000), "\u202e:x"]) {
    expect(() => readQuery(text)).not.toThrow();
  }
});

test("a chip replaces its field, a second value of a list is added", () => {
  expect(withTerm("state:failed queue:a", { field: "state", value: "queued" }, { only: true })).toBe("queue:a state:queued");
  expect(withTerm("queue:a", { field: "queue", value: "b" })).toBe("queue:a queue:b");
  expect(withTerm("owner:a", { field: "owner", value: "b" })).toBe("owner:b");
  expect(withoutField("state:failed queue:a state:queued", "state")).toBe("queue:a");
});

test("fields and values are completed at the cursor", () => {
  expect(complete("st", 2, {}).map((one) => one.word)).toEqual(["state:"]);
  expect(complete("", 0, {}).map((one) => one.word)).toContain("arg.");
  expect(complete("state:f", 7, {}).map((one) => one.word)).toEqual(["state:failed "]);
  expect(complete("queue:pr x", 8, { queue: ["press", "my queue"] }).map((one) => one.word)).toEqual(["queue:press "]);
  expect(complete("queue:my", 8, { queue: ["my queue"] }).map((one) => one.word)).toEqual(['queue:"my queue" ']);
  expect(completed("state:f task:a", 7, "state:failed ")).toEqual({ text: "state:failed task:a", cursor: 13 });
});

test("the id of a job is known by its form", () => {
  expect(jobIdIn(" 019A8F6E-2a53-7cc1-9d0e-5f1c7a0b3d42 ")).toBe("019a8f6e-2a53-7cc1-9d0e-5f1c7a0b3d42");
  expect(jobIdIn("019a8f6e")).toBeUndefined();
});
