// The whole back end in one process. `npx cinnabar serve app.ts`, or `npm run example -- backend` in a checkout.
import { application } from "cinnabar-serve";
import { orders } from "./orders.ts";
import { stock } from "./stock.ts";
import { web } from "./web.ts";
import { worker } from "./worker.ts";

const stockOne = stock("one", "tcp://127.0.0.1:7401");
const stockTwo = stock("two", "tcp://127.0.0.1:7402");

export default application("shop", {
  stockOne,
  stockTwo,
  orders: { ...orders, needs: { stockOne, stockTwo } },
  worker: { ...worker, needs: { orders } },
  web,
});
