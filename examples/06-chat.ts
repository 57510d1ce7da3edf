// A duplex stream: a chat room with three guests, and one-way calls that count what they say.
// Run it with `node build/examples/06-chat.js [url]`.
import { duplexStream, Engine, implement, oneWay, service, unary } from "cinnabar";
import { z } from "zod";

const Line = z.object({ from: z.string(), text: z.string() });
const Chat = service("chat.v1", {
  join: duplexStream({
    input: z.object({ name: z.string() }),
    items: z.string(),
    output: Line,
    idleTimeoutMs: false,
  }),
  clap: oneWay(),
  claps: unary({ output: z.int() }),
});
type Line = z.infer<typeof Line>;

/** What one guest has still to hear. A guest that reads too slowly has to leave. */
class Seat {
  #lines: Line[] = [];
  #wake = () => {};

  say(line: Line): void {
    if (this.#lines.push(line) > 1000) this.leave();
    this.#wake();
  }

  leave(): void {
    seats.delete(this);
    this.#wake();
  }

  async *lines(): AsyncGenerator<Line> {
    while (seats.has(this) || this.#lines.length > 0) {
      yield* this.#lines.splice(0);
      if (seats.has(this) && this.#lines.length === 0) await new Promise<void>((wake) => (this.#wake = wake));
    }
  }
}

const seats = new Set<Seat>();
let claps = 0;
const url = process.argv[2] ?? `shm://chat-${process.pid}`;
await using server = await Engine.open({
  listen: [url],
  serve: [
    implement(Chat, {
      async *join(said, call) {
        const seat = new Seat();
        seats.add(seat);
        const { name } = call.input;
        call.signal.addEventListener("abort", () => seat.leave());
        const listening = (async () => {
          for await (const text of said) for (const each of seats) each.say({ from: name, text });
          seat.leave();
        })();
        yield { from: "room", text: `welcome, ${name}` };
        yield* seat.lines();
        await listening;
      },
      clap: () => void claps++,
      claps: () => claps,
    }),
  ],
});

await using engine = await Engine.open();
const chat = (await engine.connect(server.urls[0] ?? url)).client(Chat);

const guests = ["Ada", "Bob", "Eve"].map((name) => ({ name, stream: chat.join.open({ name }) }));
for (const { stream } of guests) console.log((await stream.next()).value?.text);
for (const { name, stream } of guests) {
  await stream.send(`${name} says hello`);
  for (const other of guests) {
    const { value } = await other.stream.next();
    if (other.name === name) console.log(`${value?.from}: ${value?.text}`);
  }
  await chat.clap();
}
for (const { stream } of guests) await stream.end();
for (const { stream } of guests) for await (const { text } of stream) console.log("unheard:", text);
console.log(`${await chat.claps()} claps, ${seats.size} guests left`);
