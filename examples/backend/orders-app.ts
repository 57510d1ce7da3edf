// The orders with HTTP, as compose.yaml, systemd and Kubernetes start them.
import { application } from "cinnabar-serve";
import { orders } from "./orders.ts";
import { web } from "./web.ts";

export default application("shop", { orders, web });
