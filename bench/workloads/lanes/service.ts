// The module of the lanes.
import { implement } from "cinnabar";
import { Computing } from "./contract.ts";

export default implement(Computing, {
  compute({ us }) {
    let rounds = 0;
    for (const until = performance.now() + us / 1000; performance.now() < until; ) rounds++;
    return { rounds };
  },
});
