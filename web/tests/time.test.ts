import { expect, test } from "vitest";
import { lengthOf, relative, spanOf } from "../src/time.ts";

test.each([
  [0, "0 ms"],
  [250, "250 ms"],
  [1_500, "1.5 s"],
  [9_960, "10 s"],
  [41_000, "41 s"],
  [59_600, "1 min"],
  [190_000, "3 min 10 s"],
  [3_600_000, "1 h"],
  [5_400_000, "1 h 30 min"],
  [36_000_000, "10 h"],
  [90_000_000, "1 d 1 h"],
  [-5, "0 ms"],
])("%i ms are %s", (length, said) => {
  expect(lengthOf(length)).toBe(said);
});

test("moments are said from now", () => {
  expect(relative(5_000, 46_000)).toBe("41 s ago");
  expect(relative(46_000, 5_000)).toBe("in 41 s");
  expect(relative(5_400, 5_000)).toBe("now");
});

test("durations are read as the API reads them", () => {
  expect(spanOf("1h30m")).toBe(5_400_000);
  expect(spanOf("250ms")).toBe(250);
  for (const text of ["", "1", "h", "1h 30m", "-1h", "1y", "1hx"]) expect(spanOf(text)).toBeUndefined();
});
