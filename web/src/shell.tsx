import { useQueryClient } from "@tanstack/react-query";
import { type KeyboardEvent, type ReactNode, useEffect, useId, useState } from "react";
import { client, reasonOf } from "./api.ts";
import { DeadCount } from "./dead-count.tsx";
import { Icon } from "./icons.tsx";
import { useLive, useNewest } from "./live.tsx";
import { Link, Sheet, useKeys, useNow, useToast } from "./parts.tsx";
import { jobIdIn } from "./query.ts";
import { navigate, urlOf, usePlace } from "./router.ts";
import { useSession } from "./session.tsx";
import { nextTheme, setTheme, useTheme } from "./theme.ts";
import { lengthOf } from "./time.ts";

const PAGES = [
  { path: "", label: "Overview", icon: "overview", key: "o" },
  { path: "jobs", label: "Jobs", icon: "jobs", key: "j" },
  { path: "dead", label: "Dead letters", icon: "dead", key: "d", count: DeadCount },
];
/** Older than this, the top bar says how old what you see is. */
const OLD = 5000;

/** The frame of every page: the rail, the top bar, and the keys that work everywhere. */
export function Shell({ children }: { children: ReactNode }): ReactNode {
  const [panel, setPanel] = useState<"palette" | "keys" | undefined>();
  const { toggle } = useLive();
  useKeys({
    ...Object.fromEntries(PAGES.map((page) => [`g ${page.key}`, () => navigate(urlOf(page.path))])),
    p: toggle,
    t: nextTheme,
    "?": () => setPanel("keys"),
  });
  useEffect(() => {
    const press = (event: globalThis.KeyboardEvent) => {
      if (event.key.toLowerCase() !== "k" || !(event.metaKey || event.ctrlKey)) return;
      event.preventDefault();
      setPanel("palette");
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  const close = () => setPanel(undefined);
  return (
    <div className="frame">
      <a className="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById("main")?.focus())}>
        Skip to the content
      </a>
      <Rail />
      <div className="side">
        <TopBar onSearch={() => setPanel("palette")} />
        <main id="main" tabIndex={-1}>
          {children}
        </main>
      </div>
      {panel === "palette" && <Palette onClose={close} onKeys={() => setPanel("keys")} />}
      {panel === "keys" && <Keys onClose={close} />}
    </div>
  );
}

function Rail(): ReactNode {
  const { path } = usePlace();
  const { version } = useSession();
  return (
    <nav className="rail" aria-label="Pages">
      <span className="brand">Holdfast</span>
      <ul>
        {PAGES.map((page) => {
          const isHere = page.path === "" ? path === "" : path.split("/")[0] === page.path;
          return (
            <li key={page.path}>
              <Link path={page.path} aria-current={isHere ? "page" : undefined}>
                <Icon name={page.icon} />
                {page.label}
                {page.count && <page.count />}
              </Link>
            </li>
          );
        })}
      </ul>
      <span className="version">{version}</span>
    </nav>
  );
}

function TopBar({ onSearch }: { onSearch: () => void }): ReactNode {
  const session = useSession();
  return (
    <header className="top">
      {session.environment && <span className="badge">{session.environment}</span>}
      <button type="button" className="search" onClick={onSearch}>
        <Icon name="search" />
        <span className="search-text">Find a job or a command</span>
        <kbd>Ctrl K</kbd>
      </button>
      <span className="spring" />
      <LiveSwitch />
      <ThemeSwitch />
      <Person />
    </header>
  );
}

function LiveSwitch(): ReactNode {
  const { isLive, toggle } = useLive();
  const newest = useNewest();
  useNow();
  const age = newest === 0 ? 0 : Date.now() - newest;
  const words = isLive ? (age > OLD ? `${lengthOf(Math.round(age / 1000) * 1000)} old` : "live") : "paused";
  return (
    <button type="button" className={`plain live live-${isLive && age <= OLD ? "on" : "off"}`} aria-pressed={!isLive} aria-label={`${words}: ${isLive ? "pause" : "resume"} updates`} title={isLive ? "Follows the engine; press p to pause" : "Paused; press p to go on"} onClick={toggle}>
      <Icon name={isLive ? "pause" : "play"} />
      <span className="dot" />
      <span className="live-words">{words}</span>
    </button>
  );
}

function ThemeSwitch(): ReactNode {
  const theme = useTheme();
  const icon = { system: "system", light: "sun", dark: "moon" }[theme];
  return (
    <button type="button" className="plain" aria-label={`Theme: ${theme}`} title={`Theme: ${theme}; press t to change it`} onClick={nextTheme}>
      <Icon name={icon} />
    </button>
  );
}

function Person(): ReactNode {
  const session = useSession();
  const signOut = useSignOut();
  const who = session.owner ?? session.role;
  const isReadOnly = !session.may("steer");
  return (
    <span className="person">
      <Icon name="person" />
      <span title={session.name}>{who}</span>
      {isReadOnly && <span className="badge badge-quiet">read-only</span>}
      <button type="button" className="plain" onClick={() => void signOut()}>
        Sign out
      </button>
    </span>
  );
}

function useSignOut(): () => Promise<void> {
  const queries = useQueryClient();
  const say = useToast();
  return async () => {
    try {
      await client.closeSession();
      queries.clear();
      location.assign(urlOf(""));
    } catch (error) {
      say(reasonOf(error), "failed");
    }
  };
}

interface Command {
  label: string;
  hint?: string;
  run: () => void;
}

function Palette({ onClose, onKeys }: { onClose: () => void; onKeys: () => void }): ReactNode {
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const { isLive, toggle } = useLive();
  const signOut = useSignOut();
  const list = useId();
  const fixed: Command[] = [
    ...PAGES.map((page) => ({ label: `Go to ${page.label}`, hint: `g ${page.key}`, run: () => navigate(urlOf(page.path)) })),
    { label: "Show failed jobs", run: () => navigate(urlOf("jobs", { q: "state:failed" })) },
    { label: "Show running jobs", run: () => navigate(urlOf("jobs", { q: "state:processing" })) },
    { label: isLive ? "Pause live updates" : "Resume live updates", hint: "p", run: toggle },
    { label: "Use the light theme", run: () => setTheme("light") },
    { label: "Use the dark theme", run: () => setTheme("dark") },
    { label: "Use the theme of the system", run: () => setTheme("system") },
    { label: "Show all keys", hint: "?", run: onKeys },
    { label: "Sign out", run: () => void signOut() },
  ];
  const id = jobIdIn(text);
  const words = text.trim().toLowerCase().split(/\s+/);
  const found = fixed.filter((command) => words.every((word) => command.label.toLowerCase().includes(word)));
  const typed: Command[] = id
    ? [{ label: `Open job ${id}`, run: () => navigate(urlOf(`jobs/${id}`)) }]
    : text.includes(":")
      ? [{ label: `Find jobs: ${text.trim()}`, run: () => navigate(urlOf("jobs", { q: text.trim() })) }]
      : [];
  const commands = [...typed, ...found];
  const at = Math.min(chosen, commands.length - 1);
  const run = (command: Command | undefined) => {
    if (!command) return;
    onClose();
    command.run();
  };
  const press = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && commands.length > 0) {
      event.preventDefault();
      setChosen((at + step + commands.length) % commands.length);
    } else if (event.key === "Enter") {
      event.preventDefault();
      run(commands[at]);
    }
  };
  return (
    <Sheet title="Find a job or a command" onClose={onClose} narrow>
      <input
        data-first
        role="combobox"
        aria-label="Find"
        aria-expanded="true"
        aria-controls={list}
        aria-activedescendant={commands[at] ? `${list}-${at}` : undefined}
        placeholder="an id, state:failed task:…, or a command"
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setChosen(0);
        }}
        onKeyDown={press}
      />
      <ul id={list} role="listbox" aria-label="Commands" className="options">
        {commands.map((command, index) => (
          <li key={command.label} id={`${list}-${index}`} role="option" aria-selected={index === at} onMouseMove={() => setChosen(index)} onClick={() => run(command)}>
            <span>{command.label}</span>
            {command.hint && <kbd>{command.hint}</kbd>}
          </li>
        ))}
      </ul>
      {commands.length === 0 && <p className="quiet">Nothing is called that. An id of a job must be whole; a field is written task:convert.</p>}
    </Sheet>
  );
}

const KEYS: Array<[string, string]> = [
  ["Ctrl K", "find a job or a command"],
  ["g o", "Overview"],
  ["g j", "Jobs"],
  ["g d", "Dead letters"],
  ["/", "write a query, or the filter of dead letters"],
  ["j, k", "next and previous job or dead letter"],
  ["Enter", "open the job"],
  ["x", "select the job"],
  ["Shift X", "act on all that match"],
  ["r, c", "retry, cancel what is selected, or the job that is open"],
  ["r, d", "redrive, discard the dead letter that has the focus"],
  ["e", "edit the open job and retry it"],
  ["p", "pause and resume live updates"],
  ["t", "change the theme"],
  ["?", "these keys"],
];

function Keys({ onClose }: { onClose: () => void }): ReactNode {
  return (
    <Sheet title="Keys" onClose={onClose} narrow>
      <dl className="keys">
        {KEYS.map(([key, what]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
    </Sheet>
  );
}
