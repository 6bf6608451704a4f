import { Client, Problem, Unreachable } from "holdfast-client";
import { ROOT } from "./router.ts";

/** How far the server's clock is ahead of ours. People see times of the server, whatever their own clock says. */
let ahead = 0;
let isKnown = false;
const listeners = new Set<() => void>();

/** Calls the API with the session. The header is what other sites cannot send. */
async function send(input: RequestInfo | URL, options: RequestInit = {}): Promise<Response> {
  const headers = new Headers(options.headers);
  headers.set("Holdfast-Session", "1");
  const response = await fetch(input, { ...options, headers });
  readClock(response.headers.get("date"));
  if (response.status === 401) for (const listener of listeners) listener();
  return response;
}

function readClock(date: string | null) {
  const server = Date.parse(date ?? "");
  if (Number.isNaN(server)) return;
  const found = server + 500 - Date.now(); // it is cut to whole seconds
  if (!isKnown || Math.abs(found - ahead) > 1500) ahead = found;
  isKnown = true;
}

/** Returns the time of the server. */
export function now(): number {
  return Date.now() + (Math.abs(ahead) > 1500 ? ahead : 0);
}

/** Calls *listener* when the server no longer accepts the session. */
export function onSignedOut(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export const client = new Client(ROOT.href, { fetch: send, timeoutSeconds: 15, patience: { tries: 2 } });

/** Returns what went wrong and what to do, in one line. */
export function reasonOf(error: unknown): string {
  if (error instanceof Problem) return capital(error.detail);
  if (error instanceof Unreachable) return "The server does not answer. Check that it runs; this page tries again.";
  return error instanceof Error ? capital(error.message) : "Something went wrong.";
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
