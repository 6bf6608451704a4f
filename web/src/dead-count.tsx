import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { client } from "./api.ts";
import { totalOf } from "./dead.ts";
import { EVERY, useLive } from "./live.tsx";

/** How many causes are read at most. */
export const CAUSES = 100;

/** How many dead letters there are, for the rail. */
export function DeadCount(): ReactNode {
  const { isLive } = useLive();
  const asked = useQuery({ queryKey: ["dead", "count"], queryFn: () => client.listDeadLetterGroups({ limit: CAUSES }), refetchInterval: isLive && EVERY * 5 });
  const groups = asked.data?.groups ?? [];
  if (groups.length === 0) return null;
  return (
    <span className="rail-count">
      {totalOf(groups).toLocaleString("en")}
      {groups.length === CAUSES && "+"}
    </span>
  );
}
