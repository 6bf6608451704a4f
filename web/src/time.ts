const UNITS: Array<[number, string]> = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
  [1, "s"],
];

/** Returns a length of time in its two largest units, such as "3 min 10 s". */
export function lengthOf(milliseconds: number): string {
  const seconds = Math.max(0, milliseconds) / 1000;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${Math.round(seconds * 10) / 10} s`;
  let rest = Math.round(seconds);
  for (const [index, [size, unit]] of UNITS.entries()) {
    if (rest < size) continue;
    const count = Math.floor(rest / size);
    rest %= size;
    const next = UNITS[index + 1];
    const more = next && count < 10 ? Math.floor(rest / next[0]) : 0;
    return next && more > 0 ? `${count} ${unit} ${more} ${next[1]}` : `${count} ${unit}`;
  }
  return "0 s";
}

/** Returns a moment as people say it: "41 s ago", "in 3 min". */
export function relative(moment: number, now: number): string {
  const away = moment - now;
  if (Math.abs(away) < 1000) return "now";
  return away > 0 ? `in ${lengthOf(coarse(away))}` : `${lengthOf(coarse(-away))} ago`;
}

function coarse(milliseconds: number): number {
  return Math.round(milliseconds / 1000) * 1000;
}

/** Returns the time of day, with the date when it is another day. */
export function clockTime(moment: number, now: number): string {
  const date = new Date(moment);
  const time = date.toLocaleTimeString("en-GB");
  return date.toDateString() === new Date(now).toDateString() ? time : `${dayOf(date)} ${time}`;
}

/** Returns a moment to the millisecond, in the user's zone. */
export function exact(moment: number): string {
  const date = new Date(moment);
  const milliseconds = String(date.getMilliseconds()).padStart(3, "0");
  const minutes = -date.getTimezoneOffset();
  const zone = `UTC${minutes < 0 ? "−" : "+"}${Math.floor(Math.abs(minutes) / 60)}${minutes % 60 ? `:${Math.abs(minutes % 60)}` : ""}`;
  return `${dayOf(date)} ${date.toLocaleTimeString("en-GB")}.${milliseconds} ${zone}`;
}

function dayOf(date: Date): string {
  return [date.getFullYear(), date.getMonth() + 1, date.getDate()].map((part) => String(part).padStart(2, "0")).join("-");
}

const SPAN = /^(\d+(?:\.\d+)?)(ms|s|m|h|d|w)$/;
const SIZES: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };

/** Returns the milliseconds of a duration such as "1h" or "1h30m"; undefined if it is none. */
export function spanOf(text: string): number | undefined {
  const parts = text.match(/\d+(?:\.\d+)?(?:ms|[smhdw])/g);
  if (!parts || parts.join("") !== text) return undefined;
  return parts.reduce((sum, part) => {
    const [, count, unit] = SPAN.exec(part)!;
    return sum + Number(count) * SIZES[unit!]!;
  }, 0);
}
