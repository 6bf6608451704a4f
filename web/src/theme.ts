import { useSyncExternalStore } from "react";

export type Theme = "system" | "light" | "dark";

const ORDER: Theme[] = ["system", "light", "dark"];
const KEY = "holdfast.theme";
const listeners = new Set<() => void>();
let chosen: Theme = stored();

function stored(): Theme {
  try {
    const text = localStorage.getItem(KEY) as Theme | null;
    return text !== null && ORDER.includes(text) ? text : "system";
  } catch {
    return "system"; // the browser keeps nothing for this site
  }
}

function apply() {
  if (chosen === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
}

apply();

export function setTheme(theme: Theme) {
  chosen = theme;
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // it lasts as long as the page
  }
  apply();
  for (const listener of listeners) listener();
}

export function nextTheme() {
  setTheme(ORDER[(ORDER.indexOf(chosen) + 1) % ORDER.length]!);
}

export function useTheme(): Theme {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => chosen,
  );
}
