import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { type ReactNode, Component, useEffect } from "react";
import { createRoot } from "react-dom/client";
import { LiveArea } from "./live.tsx";
import { DeadPage } from "./pages/dead.tsx";
import { JobPage } from "./pages/job.tsx";
import { JobsPage } from "./pages/jobs.tsx";
import { OverviewPage } from "./pages/overview.tsx";
import { Empty, Link, ToastArea } from "./parts.tsx";
import { usePlace } from "./router.ts";
import { SignedIn, useSession } from "./session.tsx";
import { Shell } from "./shell.tsx";
import "./style.css";

const queries = new QueryClient({ defaultOptions: { queries: { networkMode: "always", retry: false, staleTime: 1000, refetchOnWindowFocus: true }, mutations: { networkMode: "always" } } });

function Page(): ReactNode {
  const { path } = usePlace();
  const { environment } = useSession();
  const [page = "", id] = path.split("/");
  const title = page === "" ? "Overview" : page === "dead" ? "Dead letters" : id ? `Job ${id.slice(0, 8)}` : "Jobs";
  useEffect(() => {
    document.title = `${environment ? `[${environment}] ` : ""}${title} · Holdfast`;
  }, [environment, title]);
  if (path === "") return <OverviewPage />;
  if (path === "jobs") return <JobsPage />;
  if (path === "dead") return <DeadPage />;
  if (page === "jobs" && id) return <JobPage key={id} id={decodeURIComponent(id)} />;
  return (
    <Empty title="There is no such page">
      <p>
        <Link path="">Go to the overview</Link>
      </p>
    </Empty>
  );
}

/** Shows one line instead of a blank page when a part of ours is wrong. */
class Boundary extends Component<{ children: ReactNode }, { error?: Error }> {
  override state: { error?: Error } = {};

  static getDerivedStateFromError(error: Error) {
    return { error };
  }

  override render() {
    if (!this.state.error) return this.props.children;
    return (
      <Empty title="This page cannot be shown">
        <p>{this.state.error.message}</p>
        <p>
          <button type="button" onClick={() => location.reload()}>
            Reload
          </button>
        </p>
      </Empty>
    );
  }
}

createRoot(document.getElementById("root")!).render(
  <QueryClientProvider client={queries}>
    <ToastArea>
      <Boundary>
        <SignedIn>
          <LiveArea>
            <Shell>
              <Boundary>
                <Page />
              </Boundary>
            </Shell>
          </LiveArea>
        </SignedIn>
      </Boundary>
    </ToastArea>
  </QueryClientProvider>,
);
