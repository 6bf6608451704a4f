import type { StatisticSeriesView } from "holdfast-client";
import { expect, test } from "vitest";
import { chartOf, drainsIn, highestOf, isEmpty, pathOf, rateText, ratesOf, roundUp, roundUpTime, stacksOf } from "../src/statistics.ts";

const START = Date.parse("2026-11-20T12:00:00Z");

function series(from: number, lines: Record<string, Array<number | null>>, minutes = Object.values(lines)[0]?.length ?? 3): StatisticSeriesView {
  const at = Array.from({ length: minutes }, (_, index) => new Date(START + (from + index) * 60_000).toISOString());
  return { metric: "completed", step: "minute", at, lines: Object.entries(lines).map(([name, values]) => ({ name, values })) };
}

function line(values: Array<number | null>) {
  return { label: "a", kind: "a", values };
}

test("an axis ends at a round number that holds every value", () => {
  expect([0, 0.3, 1, 7, 10, 11, 230, 501].map(roundUp)).toEqual([1, 0.5, 1, 10, 10, 20, 500, 1000]);
  expect(roundUp(Number.NaN)).toBe(1);
});

test("an axis of time ends at whole seconds, minutes, hours or days", () => {
  expect([0, 450, 9000, 10_001, 46_000, 100_000, 3 * 3_600_000, 90 * 3_600_000].map(roundUpTime)).toEqual([1, 500, 10_000, 20_000, 60_000, 120_000, 4 * 3_600_000, 96 * 3_600_000]);
});

test("series that were read at the turn of a minute share the minutes that all have", () => {
  const chart = chartOf([
    { label: "a", kind: "a", of: series(0, { "": [1, 2, 3] }) },
    { label: "b", kind: "b", of: series(1, { "": [4, 5, 6] }) },
  ]);
  expect(chart.at).toEqual([START + 60_000, START + 120_000]);
  expect(chart.lines.map(({ values }) => values)).toEqual([[2, 3], [4, 5]]);
});

test("a series without lines counts 0 and has no percentiles, and nothing but zeros is empty", () => {
  const chart = chartOf([{ label: "a", kind: "a", of: series(0, {}) }]);
  expect(chart.lines[0]!.values).toEqual([0, 0, 0]);
  expect(chartOf([{ label: "a", kind: "a", of: { ...series(0, {}), metric: "waited_p95" } }]).lines[0]!.values).toEqual([null, null, null]);
  expect(isEmpty(chart)).toBe(true);
  expect(isEmpty({ at: [], lines: [line([0, null])] })).toBe(true);
  expect(isEmpty({ at: [], lines: [line([0, 1])] })).toBe(false);
  expect(highestOf([], true)).toBe(0);
});

test("lines are stacked without gaps, and the highest stack is what the axis must hold", () => {
  const lines = [line([1, 0, null]), line([3, 2, null])];
  expect(highestOf(lines, true)).toBe(4);
  expect(highestOf(lines, false)).toBe(3);
  expect(stacksOf(lines, 4, 100)).toEqual([
    [{ index: 0, y: 75, height: 25 }],
    [{ index: 0, y: 0, height: 75 }, { index: 1, y: 50, height: 50 }],
  ]);
});

test("a line is open where nothing was measured, and a value alone is a point", () => {
  expect(pathOf([0, 10, null, 5], 10, 40, 20)).toBe("M5 20h0L15 0M35 10h0");
  expect(pathOf([], 10, 40, 20)).toBe("");
});

test("the rate is of the last five minutes and the current one", () => {
  const rateOf = ratesOf(series(0, { mail: [600, 10, 10, 10, 10, 10, 5], slow: [0, 0, 0, 0, 0, 1, 0] }), START + 6.5 * 60_000);
  expect(rateOf("mail")!.perMinute).toBeCloseTo(55 / 5.5);
  expect(rateOf("slow")!.perMinute).toBeCloseTo(1 / 5.5);
  expect(rateOf("idle")!.perMinute).toBe(0);
});

test("a rate ends where the counting has come to, and is no lower because it is behind", () => {
  const rateOf = ratesOf(series(0, { mail: [10, 10, 10, 10, 10, 10, 5, 0, 0, 0, 0, 0, 0] }), START + 6.5 * 60_000);
  expect(rateOf("mail")!.perMinute).toBeCloseTo(10);
});

test("a queue that was added to the others has no rate of its own", () => {
  const rateOf = ratesOf(series(0, { mail: [1, 1, 1], "(other)": [9, 9, 9] }), START + 180_000);
  expect(rateOf("small")).toBeUndefined();
  expect(rateOf("mail")).toBeDefined();
});

test("a series without periods has the rate 0", () => {
  expect(ratesOf(series(0, {}, 0), START)("mail")!.perMinute).toBe(0);
});

test("a queue drains only if jobs wait and some are completed", () => {
  expect(drainsIn(30, 10)).toBe(180_000);
  expect(drainsIn(0, 10)).toBeUndefined();
  expect(drainsIn(30, 0)).toBeUndefined();
});

test("a rate has the digits that it has", () => {
  expect([0, 0.04, 0.44, 9.5, 611.4, 12_345].map(rateText)).toEqual(["0", "< 0.1", "0.4", "9.5", "611", "12,345"]);
});
