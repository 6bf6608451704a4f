import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { changesOf, hiddenIn } from "../src/diff.ts";
import { asCommand, asCurl, asPython, pythonLiteral, shellWord } from "../src/snippets.ts";

const HOSTILE = ["$(touch x)", "`id`", "'; rm -rf /; '", "a\nb", "", "-n", "ü😀", "\u202e\u200b", String.raw`\'"`, "!x", "~"];
const CALL = { task: "convert", args: { pdf: "a b.pdf", pages: 2, flag: true, none: null, number: "7" }, queue: "press", owner: "o'neil", priority: 0 };

test("a shell reads every word as it was", () => {
  for (const text of HOSTILE) {
    expect(execFileSync("sh", ["-c", `printf %s ${shellWord(text)}`]).toString()).toBe(text);
  }
});

test("Python reads every value as it was", () => {
  const value = { texts: HOSTILE, nested: [{ a: null, b: true, c: 1.5 }] };
  const code = `import json; print(json.dumps(${pythonLiteral(value)}))`;
  expect(JSON.parse(execFileSync("python3", ["-c", code]).toString())).toEqual(value);
});

test("the same call as curl, command and Python", () => {
  expect(asCurl(CALL, "https://jobs.example/a")).toContain("https://jobs.example/a/api/v1/jobs");
  expect(asCurl(CALL, "https://jobs.example/a")).toContain(String.raw`"owner":"o'\''neil"`);
  expect(asCommand(CALL)).toBe(String.raw`holdfast enqueue convert 'pdf=a b.pdf' pages=2 flag=true none=null 'number="7"' --queue press --owner 'o'\''neil' --app APP`);
  expect(asPython(CALL)).toBe(
    `app.tasks["convert"].options(queue="press", owner="o'neil").enqueue_sync(**{"pdf": "a b.pdf", "pages": 2, "flag": True, "none": None, "number": "7"})`,
  );
});

test("a diff names what changed, and hidden values are found", () => {
  expect(changesOf({ a: 1, b: { c: [1] } }, { a: 1, b: { c: [2] }, d: "x" })).toEqual([
    { path: "b.c", before: "[1]", after: "[2]" },
    { path: "d", before: undefined, after: '"x"' },
  ]);
  expect(hiddenIn({ password: "***", list: ["a", "https://u:***@x"], plain: "ok" })).toEqual(["password", "list[1]"]);
});
