import type { ReactNode } from "react";

const PATHS: Record<string, string> = {
  overview: "M2.5 2.5h4v5h-4zM9.5 2.5h4v3h-4zM9.5 8.5h4v5h-4zM2.5 10.5h4v3h-4z",
  jobs: "M2.5 4h11M2.5 8h11M2.5 12h7",
  dead: "M2.5 4h11v8.5h-11zM2.5 4.5L8 9l5.5-4.5",
  queued: "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11M8 5v3l2 1.5",
  processing: "M5 3.5v9l7.5-4.5z",
  complete: "M3 8.5l3.5 3.5L13 4.5",
  failed: "M4 4l8 8M12 4l-8 8",
  cancelled: "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11M4.2 4.2l7.6 7.6",
  retry: "M13 3v3.5H9.5M12.7 6.3A5.2 5.2 0 1 0 13 9.5",
  copy: "M5.5 5.5h8v8h-8zM3.5 10.5h-1v-8h8v1",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 1 0 0-9M10.5 10.5l3 3",
  sun: "M8 5.2a2.8 2.8 0 1 0 0 5.6a2.8 2.8 0 1 0 0-5.6M8 1.5v1.6M8 12.9v1.6M1.5 8h1.6M12.9 8h1.6M3.4 3.4l1.1 1.1M11.5 11.5l1.1 1.1M3.4 12.6l1.1-1.1M11.5 4.5l1.1-1.1",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3A5.5 5.5 0 1 0 13 9.5z",
  system: "M2.5 3.5h11v7h-11zM6 13h4",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  play: "M5 3.5v9l7.5-4.5z",
  warn: "M8 2.5l6 11H2zM8 6.5v3.2M8 11.4v.4",
  chevron: "M6 4l4 4-4 4",
  close: "M4 4l8 8M12 4l-8 8",
  edit: "M3 13l.6-2.8L10.8 3l2.2 2.2-7.2 7.2z",
  person: "M8 3a2.4 2.4 0 1 0 0 4.8A2.4 2.4 0 1 0 8 3M3.5 13c.5-2.6 2.2-4 4.5-4s4 1.4 4.5 4",
};

/** A picture beside a word; it is not read aloud. */
export function Icon({ name }: { name: string }): ReactNode {
  return (
    <svg className="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={PATHS[name] ?? PATHS.queued} />
    </svg>
  );
}
