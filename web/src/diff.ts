export interface Change {
  path: string;
  before: string | undefined;
  after: string | undefined;
}

/** Returns how two JSON values differ, by the path of each change. */
export function changesOf(before: unknown, after: unknown, path = ""): Change[] {
  if (isObject(before) && isObject(after)) {
    const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
    return names.flatMap((name) => changesOf(before[name], after[name], path ? `${path}.${name}` : name));
  }
  const [one, other] = [JSON.stringify(before), JSON.stringify(after)];
  return one === other ? [] : [{ path, before: one, after: other }];
}

/** Returns the paths of the values that the server hides. */
export function hiddenIn(value: unknown, path = ""): string[] {
  if (typeof value === "string") return value.includes(HIDDEN) ? [path] : [];
  if (Array.isArray(value)) return value.flatMap((inner, index) => hiddenIn(inner, `${path}[${index}]`));
  if (!isObject(value)) return [];
  return Object.entries(value).flatMap(([name, inner]) => hiddenIn(inner, path ? `${path}.${name}` : name));
}

/** What the server writes in place of a secret. */
export const HIDDEN = "***";

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
