// One replica of the stock alone, as compose.yaml, systemd and Kubernetes start it.
import { application } from "cinnabar-serve";
import { stock } from "./stock.ts";

export default application("shop", { stock: stock(process.env.HOSTNAME ?? "stock", "tcp://0.0.0.0:7400") });
