import { expect, test } from "vitest";
import { clausesOf, type Seen } from "../src/health.ts";

const NOW = Date.parse("2026-11-20T12:00:00Z");

function seen(given: object): Seen {
  const nothing = { health: { status: "pass", checks: [] }, queues: [], lanes: [], breakers: [], groups: [], workers: { workers: [], count: 2, busy: 1, leases: 3, paused: [] }, isCut: { queues: false, groups: false } };
  return { ...nothing, ...given } as Seen;
}
const texts = (given: object) => clausesOf(seen(given), NOW).map((clause) => clause.text);

test("all well is said with its figures", () => {
  expect(texts({ queues: [{ name: "a", waiting: 4, held: null }] })).toEqual(["All is well: 2 workers run 3 jobs, 4 wait."]);
});

test("the worst comes first, and each clause has its number", () => {
  const said = texts({
    health: { status: "fail", checks: [{ name: "workers", status: "fail", text: "…" }, { name: "oldest_wait", status: "warn", text: "the next job of mail has waited for 6m" }] },
    queues: [{ name: "mail", waiting: 412, held: null }],
    lanes: [{ dependency: "gateway", waiting: 400 }, { dependency: "gateway", waiting: 12 }, { dependency: "other", waiting: 5 }],
    breakers: [{ dependency: "gateway", state: "open", opened_at: "2026-11-20T11:57:00Z" }],
    groups: [{ count: 41, last_at: "2026-11-20T11:59:19Z" }],
  });
  expect(said[0]).toBe("No worker is running; 412 jobs wait.");
  expect(said[1]).toMatch(/^gateway is down since .* \(3 min\); 412 jobs wait, none lost\.$/);
  expect(said[2]).toBe("The next job of mail has waited for 6m.");
  expect(said[3]).toBe("41 jobs have failed for good, by 1 cause, the last 41 s ago.");
});

test("a paused queue names who paused it", () => {
  const held = { by: "key:ops", at: "2026-11-20T11:00:00Z", until: null };
  expect(texts({ queues: [{ name: "mail", waiting: 1, held }] })[0]).toMatch(/^Queue mail is paused by key:ops since/);
});
