import { createRoot } from "react-dom/client";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import "./style.css";
createRoot(document.getElementById("root")!).render(<QueryClientProvider client={new QueryClient()}><p>hi</p></QueryClientProvider>);
