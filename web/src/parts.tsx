import {
  type ComponentProps,
  type KeyboardEvent,
  type ReactNode,
  createContext,
  useCallback,
  useContext,
  useEffect,
  useId,
  useRef,
  useState,
  useSyncExternalStore,
} from "react";
import { now, reasonOf } from "./api.ts";
import { Icon } from "./icons.tsx";
import { follow, urlOf } from "./router.ts";
import { clockTime, exact, relative } from "./time.ts";

// -- links and states -----------------------------------------------------------------------------------------------
type LinkProps = ComponentProps<"a"> & { path: string; query?: Record<string, string | null> };

export function Link({ path, query, ...rest }: LinkProps): ReactNode {
  return <a {...rest} href={urlOf(path, query)} onClick={follow} />;
}

const WORDS: Record<string, string> = { processing: "running" };

/** A state as icon, word and colour. */
export function State({ state }: { state: string }): ReactNode {
  return (
    <span className={`state state-${state}`}>
      <Icon name={state} />
      {WORDS[state] ?? state}
    </span>
  );
}

/** A text whose parts in backticks are shown as code. */
export function Coded({ text }: { text: string }): ReactNode {
  return text.split("`").map((part, index, parts) => (index % 2 === 1 && index < parts.length - 1 ? <code key={index}>{part}</code> : part));
}

// -- time -------------------------------------------------------------------------------------------------------------
let second = now();
const tickers = new Set<() => void>();
setInterval(() => {
  if (document.hidden) return;
  second = now();
  for (const ticker of tickers) ticker();
}, 1000);

function subscribe(ticker: () => void) {
  second = now();
  tickers.add(ticker);
  return () => tickers.delete(ticker);
}

/** Returns the time of the server, which goes on by the second. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => second);
}

/** A moment from now, or its time of day to the millisecond; the exact one is in its tooltip. */
export function Time({ at, clock = false }: { at: string | null; clock?: boolean }): ReactNode {
  const current = useNow();
  if (at === null) return <span className="quiet">–</span>;
  const moment = Date.parse(at);
  return (
    <time dateTime={at} title={exact(moment)}>
      {clock ? `${clockTime(moment, current)}.${String(moment % 1000).padStart(3, "0")}` : relative(moment, current)}
    </time>
  );
}

// -- what a page shows when there is nothing, not yet, or no more ----------------------------------------------------
export function Empty({ title, children }: { title: string; children?: ReactNode }): ReactNode {
  return (
    <div className="empty">
      <p className="empty-title">{title}</p>
      {children}
    </div>
  );
}

export function Skeleton({ rows = 5 }: { rows?: number }): ReactNode {
  return (
    <div className="skeleton" role="status" aria-label="Loading">
      {Array.from({ length: rows }, (_, index) => (
        <span key={index} className="bone" />
      ))}
    </div>
  );
}

interface Asked {
  error: unknown;
  dataUpdatedAt: number;
  failureCount?: number;
  data?: unknown;
}

/** Says that a request failed, and since when what is shown is old. The last data stay. */
export function Failure({ asked }: { asked: Asked[] }): ReactNode {
  const failed = asked.find((one) => one.error);
  if (!failed) return null;
  const old = failed.dataUpdatedAt > 0 ? ` What you see is of ${clockTime(failed.dataUpdatedAt, Date.now())}.` : "";
  return (
    <p className="notice notice-failed" role="alert">
      <Icon name="warn" />
      <span>
        {reasonOf(failed.error)}
        {old}
      </span>
    </p>
  );
}

// -- buttons ------------------------------------------------------------------------------------------------------------
export function CopyButton({ text, label }: { text: string; label: string }): ReactNode {
  const say = useToast();
  return (
    <button type="button" className="plain" aria-label={label} title={label} onClick={() => void copy(text).then((done) => say(done ? "Copied" : "The browser does not allow to copy; select the text instead"))}>
      <Icon name="copy" />
    </button>
  );
}

/** Copies a text, also where the page came without TLS and the clipboard is therefore closed to scripts. */
export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "off-screen";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

// -- sheets -------------------------------------------------------------------------------------------------------------
interface SheetProps {
  title: string;
  onClose: () => void;
  children: ReactNode;
  narrow?: boolean;
}

/** A panel over the page. Escape and a click beside it close it; the focus stays in it and returns where it was. */
export function Sheet({ title, onClose, children, narrow = false }: SheetProps): ReactNode {
  const dialog = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useEffect(() => {
    const opener = document.activeElement as HTMLElement | null;
    dialog.current?.showModal();
    dialog.current?.querySelector<HTMLElement>("[data-first]")?.focus();
    return () => opener?.focus?.();
  }, []);
  return (
    <dialog
      ref={dialog}
      className={narrow ? "sheet sheet-narrow" : "sheet"}
      aria-labelledby={heading}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onMouseDown={(event) => event.target === dialog.current && onClose()}
    >
      <div className="sheet-body">
        <header className="sheet-head">
          <h2 id={heading}>{title}</h2>
          <button type="button" className="plain" aria-label="Close" onClick={onClose}>
            <Icon name="close" />
          </button>
        </header>
        {children}
      </div>
    </dialog>
  );
}

// -- tabs ---------------------------------------------------------------------------------------------------------------
interface Tab {
  id: string;
  label: string;
}

export function Tabs({ tabs, chosen, onChoose, children }: { tabs: Tab[]; chosen: string; onChoose: (id: string) => void; children: ReactNode }): ReactNode {
  const base = useId();
  const move = (event: KeyboardEvent<HTMLButtonElement>, index: number) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = tabs[(index + step + tabs.length) % tabs.length]!;
    onChoose(next.id);
    document.getElementById(`${base}-${next.id}`)?.focus();
  };
  return (
    <>
      <div className="tabs" role="tablist">
        {tabs.map((tab, index) => (
          <button
            key={tab.id}
            id={`${base}-${tab.id}`}
            type="button"
            role="tab"
            aria-selected={tab.id === chosen}
            aria-controls={`${base}-panel`}
            tabIndex={tab.id === chosen ? 0 : -1}
            onClick={() => onChoose(tab.id)}
            onKeyDown={(event) => move(event, index)}
          >
            {tab.label}
          </button>
        ))}
      </div>
      <div id={`${base}-panel`} role="tabpanel" aria-labelledby={`${base}-${chosen}`} tabIndex={0} className="tab-panel">
        {children}
      </div>
    </>
  );
}

// -- toasts -------------------------------------------------------------------------------------------------------------
const Toasts = createContext<(text: string, level?: "done" | "failed") => void>(() => {});

export function useToast() {
  return useContext(Toasts);
}

interface Said {
  id: number;
  text: string;
  level: "done" | "failed";
}

export function ToastArea({ children }: { children: ReactNode }): ReactNode {
  const [said, setSaid] = useState<Said[]>([]);
  const next = useRef(0);
  const say = useCallback((text: string, level: "done" | "failed" = "done") => {
    const id = (next.current += 1);
    setSaid((before) => [...before.slice(-2), { id, text, level }]);
    setTimeout(() => setSaid((before) => before.filter((one) => one.id !== id)), level === "failed" ? 12_000 : 5_000);
  }, []);
  return (
    <Toasts value={say}>
      {children}
      <div className="toasts" role="status">
        {said.map((one) => (
          <p key={one.id} className={`toast toast-${one.level}`}>
            <Icon name={one.level === "done" ? "complete" : "warn"} />
            {one.text}
          </p>
        ))}
      </div>
    </Toasts>
  );
}

// -- keys ---------------------------------------------------------------------------------------------------------------
/** Calls a function when its key is pressed, and the user is not writing. A sequence is written "g j". */
export function useKeys(keys: Record<string, () => void>) {
  const latest = useRef(keys);
  latest.current = keys;
  useEffect(() => {
    let before = "";
    let timer = 0;
    const press = (event: globalThis.KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, textarea, select, dialog, [contenteditable]")) return;
      const found = latest.current[`${before} ${event.key}`] ?? latest.current[event.key];
      clearTimeout(timer);
      before = event.key;
      timer = window.setTimeout(() => (before = ""), 1000);
      if (!found) return;
      event.preventDefault();
      found();
    };
    addEventListener("keydown", press);
    return () => {
      removeEventListener("keydown", press);
      clearTimeout(timer);
    };
  }, []);
}
