import { bulk, implement, service, unary } from "cinnabar";
import { expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { failure } from "../matrix/wait.ts";

const Hold = service("hold.v1", { hold: unary({ input: z.object({ region: bulk("read_write") }) }) });

it.each(transports)(
  "what a server was lent over $name is free again when it has said goodbye",
  async (provider) => {
    let entered: () => void;
    const inHandler = new Promise<void>((resolve) => {
      entered = resolve;
    });
    const { server, client, api } = await pair(
      provider,
      [
        implement(Hold, {
          async hold({ region }, call) {
            await call.put(new Uint8Array(16), region);
            entered();
            await new Promise((_, reject) => call.signal.addEventListener("abort", reject));
          },
        }),
      ],
      { endsHard: true },
    );
    const region = client.expose(new Uint8Array(16), { access: "read_write" });
    const ended = failure(api(Hold).hold({ region }));
    await inHandler;
    await server.close();
    expect(await ended).toMatchObject({ code: "unavailable" });
    expect(client.stats().quarantinedBytes).toBe(0);
    expect(region.grants).toBe(0);
    expect(client.stats().counters).toMatchObject({ sessionsClosed: 1, sessionsLost: 0 });
    region.dispose();
    expect(client.stats().regions).toBe(0);
  },
);
