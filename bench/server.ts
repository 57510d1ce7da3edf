// A server process for one contender: `server.js NAME`, started by calls.ts and ended with it.
import { contenders } from "./contenders.ts";

const contender = contenders.find(({ name }) => name === process.argv[2]);
if (contender === undefined) throw new Error(`No contender "${process.argv[2]}"`);
const serving = await contender.serve();
process.once("disconnect", () => void serving.close());
process.send?.(serving.address);
process.channel?.ref();
