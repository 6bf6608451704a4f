import type { StatisticLineView, StatisticSeriesView } from "holdfast-client";

/** One line of a chart: its value in each minute, null where nothing was measured. */
export interface Line {
  label: string;
  /** The end of its class in the style sheet. */
  kind: string;
  values: Array<number | null>;
}

export interface Chart {
  /** When each minute began, in milliseconds. */
  at: number[];
  lines: Line[];
}

const MINUTE = 60_000;
/** The rate of a queue is that of this many whole minutes and the current one. */
const RECENT = 5;
/** Younger than this, events that are not counted yet are not worth a word. */
export const LAGS = 5000;
/** What the API calls all lines that are too small for one of their own. */
const OTHER = "(other)";

/** Returns series without a split as lines over the minutes that all of them have: each was read a moment after the other. */
export function chartOf(series: Array<{ label: string; kind: string; of: StatisticSeriesView }>): Chart {
  const [first, ...others] = series.map(({ of }) => of.at);
  const shared = (first ?? []).filter((at) => others.every((one) => one.includes(at)));
  return {
    at: shared.map((at) => Date.parse(at)),
    lines: series.map(({ label, kind, of }) => ({ label, kind, values: shared.map((at) => valueOf(of, at)) })),
  };
}

/** A series of which nothing was counted has no line: a count is 0 then, and a percentile is unknown. */
function valueOf({ metric, at, lines }: StatisticSeriesView, moment: string): number | null {
  return lines[0]?.values[at.indexOf(moment)] ?? (/_p\d+$/.test(metric) ? null : 0);
}

export function isEmpty({ lines }: Chart): boolean {
  return lines.every((line) => line.values.every((value) => !value));
}

/** Returns where an axis that holds *highest* ends: 1, 2 or 5 times a power of ten. */
export function roundUp(highest: number): number {
  if (!(highest > 0)) return 1;
  const size = 10 ** Math.floor(Math.log10(highest));
  return [1, 2, 5, 10].map((step) => step * size).find((end) => end >= highest) ?? highest;
}

const TIMES = [20, 30, 60, 120, 240, 600, 1200, 3600, 7200, 14_400, 43_200, 86_400].map((seconds) => seconds * 1000);

/** Returns where an axis of milliseconds ends: its half must be round too, in seconds, minutes or hours. */
export function roundUpTime(highest: number): number {
  const end = highest > 10_000 ? TIMES.find((time) => time >= highest) : roundUp(highest);
  return end ?? Math.ceil(highest / 172_800_000) * 172_800_000;
}

/** Returns the highest value of lines that are drawn over each other or, *stacked*, on each other. */
export function highestOf(lines: Line[], stacked: boolean): number {
  const sums = lines[0]?.values.map((_, index) => lines.map((line) => line.values[index] ?? 0).reduce((sum, value) => (stacked ? sum + value : Math.max(sum, value)), 0)) ?? [];
  return Math.max(0, ...sums);
}

export interface Box {
  index: number;
  y: number;
  height: number;
}

/** Returns for each line the boxes that it adds to the stack, in an area that is *height* high and ends at *most*. */
export function stacksOf(lines: Line[], most: number, height: number): Box[][] {
  const tops = lines[0]?.values.map(() => height) ?? [];
  return lines.map((line) =>
    line.values.flatMap((value, index) => {
      if (!value) return [];
      const high = (value / most) * height;
      tops[index]! -= high;
      return [{ index, y: tops[index]!, height: high }];
    }),
  );
}

/** Returns the path of a line, open where nothing was measured. A value alone is a point, drawn by the round end of the stroke. */
export function pathOf(values: Array<number | null>, most: number, width: number, height: number): string {
  const step = width / Math.max(1, values.length);
  return values
    .flatMap((value, index) => {
      if (value === null) return [];
      const goesOn = index > 0 && values[index - 1] !== null;
      const place = `${tidy((index + 0.5) * step)} ${tidy(height - (value / most) * height)}`;
      return [goesOn ? `L${place}` : `M${place}h0`];
    })
    .join("");
}

function tidy(number: number): number {
  return Math.round(number * 10) / 10;
}

export interface Rate {
  perMinute: number;
  /** The whole range, for a picture of a few pixels. */
  values: Array<number | null>;
}

/** Returns how many jobs each queue completed a minute before *until*, to when they are counted; `undefined` for one that the series has added to the others. */
export function ratesOf(series: StatisticSeriesView, until: number): (queue: string) => Rate | undefined {
  const lines = new Map(series.lines.map((line) => [line.name, line]));
  const nothing: StatisticLineView = { name: "", values: series.at.map(() => 0) };
  return (queue) => {
    const line = lines.get(queue) ?? (lines.has(OTHER) ? undefined : nothing);
    return line && { perMinute: perMinute(series.at, line.values, until), values: line.values };
  };
}

function perMinute(at: string[], values: Array<number | null>, until: number): number {
  const end = at.filter((begun) => Date.parse(begun) <= until).length;
  const begin = Math.max(0, end - 1 - RECENT);
  const passed = until - Date.parse(at[begin] ?? "");
  const count = values.slice(begin, end).reduce<number>((sum, value) => sum + (value ?? 0), 0);
  return count / Math.max(1, passed / MINUTE) || 0;
}

/** Returns in how many milliseconds a queue is empty if nothing is added; `undefined` if none waits or none is completed. */
export function drainsIn(waiting: number, rate: number): number | undefined {
  return waiting > 0 && rate > 0 ? (waiting / rate) * MINUTE : undefined;
}

/** Returns a rate with the digits that it has: 0.4, 9.5, 611. */
export function rateText(rate: number): string {
  if (rate > 0 && rate < 0.1) return "< 0.1";
  return rate.toLocaleString("en", { maximumFractionDigits: rate < 10 ? 1 : 0 });
}
