// A worker alone, as compose.yaml, systemd and Kubernetes start it.
import { application } from "cinnabar-serve";
import { worker } from "./worker.ts";

export default application("shop", { worker });
