import { EventEmitter } from "node:events";
import { Engine, type EngineOptions, type Implementation, type Peer } from "cinnabar/standard";
import { type Member, makeView, type View } from "../view/view.ts";
import { Collectives } from "./collectives.ts";
import type { CarriedMember } from "./envelope.ts";
import type { GroupImplementation } from "./handlers.ts";
import type { Members } from "./members.ts";

/** A member of a group in one process. The test sets its view. */
export class TestMember implements Members {
  readonly name = "test";
  readonly engine: Engine;
  readonly self: Member | undefined;
  readonly collectives: Collectives;
  #view: View;
  readonly #events = new EventEmitter();
  readonly #peers = new Map<string, Peer>();

  constructor(engine: Engine, self: Member | undefined, view: View, serve: readonly GroupImplementation[]) {
    this.engine = engine;
    this.self = self;
    this.#view = view;
    this.collectives = new Collectives(this, serve);
  }

  get view(): View {
    return this.#view;
  }

  set view(view: View) {
    this.#view = view;
    this.#events.emit("view", { view });
  }

  on(event: "view", listener: (event: { readonly view: View }) => void): () => void {
    this.#events.on(event, listener);
    return () => void this.#events.off(event, listener);
  }

  reach({ urls }: CarriedMember): Peer {
    const [url = ""] = urls;
    const peer = this.#peers.get(url) ?? this.engine.lazyPeer([url]);
    this.#peers.set(url, peer);
    return peer;
  }
}

let groups = 0;

/** Opens a group of `size` engines over mem, each with the implementations that `serve` makes for its rank. */
export async function groupOf(
  size: number,
  serve: (rank: number) => readonly GroupImplementation[],
  options: EngineOptions = {},
): Promise<TestMember[]> {
  const group = ++groups;
  const implementations = Array.from({ length: size }, (_, rank) => serve(rank));
  const engines = await Promise.all(
    implementations.map((each, rank) =>
      Engine.open({
        ...options,
        listen: `mem://collective-${group}-${rank}`,
        serve: each as readonly Implementation[],
      }),
    ),
  );
  const members = engines.map((engine, rank) => member(rank, engine.urls));
  const view = makeView("test", 1, members);
  return engines.map(
    (engine, rank) => new TestMember(engine, view.members[rank], view, implementations[rank] ?? []),
  );
}

/** A process outside the group that knows its view. */
export async function observerOf([first]: readonly TestMember[]): Promise<TestMember> {
  return new TestMember(await Engine.open(), undefined, (first as TestMember).view, []);
}

export function member(rank: number, urls: readonly string[], incarnation = 0): Member {
  return {
    ...{ rank, incarnation, urls, metadata: {} },
    ...{ engine: undefined, host: undefined, detector: undefined },
  };
}

export async function closeAll(members: readonly TestMember[]): Promise<void> {
  for (const { collectives } of members) collectives.close();
  await Promise.all(members.map(({ engine }) => engine.close()));
}
