/** The same call in other languages. Every text is quoted: it came from outside. */
export interface Call {
  task: string;
  args: Record<string, unknown>;
  queue: string;
  owner: string | null;
  priority: number;
}

/** Returns a word that a POSIX shell reads as *text*, whatever it contains. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** Returns a JSON value as a literal of Python. */
export function pythonLiteral(value: unknown): string {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number") return String(value);
  if (typeof value === "string") return JSON.stringify(value).replace(/[\u007f-\uffff]/g, escaped);
  if (Array.isArray(value)) return `[${value.map(pythonLiteral).join(", ")}]`;
  const pairs = Object.entries(value as object).map(([name, inner]) => `${pythonLiteral(name)}: ${pythonLiteral(inner)}`);
  return `{${pairs.join(", ")}}`;
}

/** Python reads JSON's escapes, but a lone surrogate or a control character could also be invisible in the text. */
function escaped(letter: string): string {
  return /[\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]/.test(letter)
    ? surrogateSafe(letter)
    : letter;
}

function surrogateSafe(letter: string): string {
  const code = letter.charCodeAt(0);
  // A pair stays as it is: Python's "\ud83d\ude00" would be two letters.
  return code >= 0xd800 && code <= 0xdfff ? letter : `\\u${code.toString(16).padStart(4, "0")}`;
}

export function asCurl(call: Call, api: string): string {
  const body: Record<string, unknown> = { task: call.task, args: call.args, queue: call.queue };
  if (call.owner !== null) body.owner = call.owner;
  if (call.priority !== 0) body.priority = call.priority;
  return [
    `curl -X POST ${shellWord(`${api}/api/v1/jobs`)}`,
    `-H "Authorization: Bearer $KEY"`,
    `-H 'Content-Type: application/json'`,
    `-d ${shellWord(JSON.stringify(body))}`,
  ].join(" \\\n  ");
}

export function asCommand(call: Call): string {
  const pairs = Object.entries(call.args).map(([name, value]) => shellWord(`${name}=${commandValue(value)}`));
  const owner = call.owner === null ? [] : ["--owner", shellWord(call.owner)];
  const priority = call.priority === 0 ? [] : ["--priority", String(call.priority)];
  return ["holdfast enqueue", shellWord(call.task), ...pairs, "--queue", shellWord(call.queue), ...owner, ...priority, "--app APP"].join(" ");
}

/** The command reads a value as JSON, or else as text: a text that looks like JSON must be quoted as JSON. */
function commandValue(value: unknown): string {
  if (typeof value !== "string") return JSON.stringify(value);
  try {
    JSON.parse(value);
    return JSON.stringify(value);
  } catch {
    return value;
  }
}

export function asPython(call: Call): string {
  const options = [`queue=${pythonLiteral(call.queue)}`];
  if (call.owner !== null) options.push(`owner=${pythonLiteral(call.owner)}`);
  if (call.priority !== 0) options.push(`priority=${call.priority}`);
  return `app.tasks[${pythonLiteral(call.task)}].options(${options.join(", ")}).enqueue_sync(**${pythonLiteral(call.args)})`;
}
