import { useIsFetching, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, createContext, useCallback, useContext, useEffect, useMemo, useState } from "react";

/** How often a page that is seen asks for news. */
export const EVERY = 2000;

interface Live {
  isLive: boolean;
  /** For `refetchInterval`. A hidden tab asks for nothing in any case. */
  every: number | false;
  toggle: () => void;
}

const Context = createContext<Live>({ isLive: true, every: EVERY, toggle: () => {} });

export function useLive(): Live {
  return useContext(Context);
}

/** Lets pages follow the engine, or stand still: paused means paused, also after the tab was away. */
export function LiveArea({ children }: { children: ReactNode }): ReactNode {
  const queries = useQueryClient();
  const [isLive, setLive] = useState(true);
  useEffect(() => {
    const defaults = queries.getDefaultOptions();
    queries.setDefaultOptions({ ...defaults, queries: { ...defaults.queries, refetchOnWindowFocus: isLive, refetchOnReconnect: isLive } });
    if (isLive) void queries.invalidateQueries({ predicate: (query) => query.queryKey[0] !== "session" });
  }, [isLive, queries]);
  const toggle = useCallback(() => setLive((before) => !before), []);
  const value = useMemo<Live>(() => ({ isLive, every: isLive ? EVERY : false, toggle }), [isLive, toggle]);
  return <Context value={value}>{children}</Context>;
}

/** Returns when the newest answer came that this page shows. */
export function useNewest(): number {
  useIsFetching();
  const queries = useQueryClient();
  const seen = queries.getQueryCache().findAll({ type: "active", predicate: (query) => query.queryKey[0] !== "session" });
  return Math.max(0, ...seen.map((query) => query.state.dataUpdatedAt));
}
