import { type MouseEvent, useSyncExternalStore } from "react";

/** Where the dashboard is mounted. The server writes it into each page as `<base href>`. */
export const ROOT = new URL(".", document.baseURI);

export interface Place {
  /** The path below the root, such as `jobs/019a…`. */
  path: string;
  query: URLSearchParams;
}

type Query = Record<string, string | null | undefined>;

let current = read();
const listeners = new Set<() => void>();

function read(): Place {
  const path = location.pathname.slice(ROOT.pathname.length).replace(/\/+$/, "");
  return { path, query: new URLSearchParams(location.search) };
}

function update() {
  current = read();
  for (const listener of listeners) listener();
}

addEventListener("popstate", update);

function subscribe(listener: () => void) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Returns where the user is, and renders again when that changes. */
export function usePlace(): Place {
  return useSyncExternalStore(subscribe, () => current);
}

/** Returns the URL of a page. Names in *path* are encoded by the caller. */
export function urlOf(path: string, query: Query = {}): string {
  const url = new URL(path, ROOT);
  for (const [name, value] of Object.entries(query)) {
    if (value) url.searchParams.set(name, value);
  }
  return url.pathname + url.search;
}

export function navigate(url: string, { replace = false } = {}) {
  if (replace) history.replaceState(null, "", url);
  else {
    history.pushState(null, "", url);
    scrollTo(0, 0);
  }
  update();
}

/** Changes parts of the query of this page; null removes one. */
export function setQuery(changes: Query, { replace = true } = {}) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  const text = query.toString();
  navigate(location.pathname + (text ? `?${text}` : ""), { replace });
}

/** Opens a link of ours without a reload, unless the user asks for a new tab. */
export function follow(event: MouseEvent<HTMLAnchorElement>) {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  navigate(event.currentTarget.pathname + event.currentTarget.search);
}
