import { Engine, implement } from "cinnabar";
import { Echo } from "../echo/contract.ts";

export interface ReadingServer {
  url(): Promise<string>;
  close(): Promise<void>;
}

/** An echo whose handler looks at the metadata, where there is some. */
export async function open(listen: string): Promise<ReadingServer> {
  const echo = implement(Echo, {
    echo(input, call) {
      const { metadata } = call;
      const isWrong = metadata.get("x-tenant") !== "acme" && metadata.has("traceparent");
      if (isWrong) throw new Error("the metadata are not what was sent");
      return input;
    },
  });
  const engine = await Engine.open({ listen, serve: [echo] });
  return {
    url: async () => engine.urls[0] ?? "",
    close: () => engine.close(),
  };
}
