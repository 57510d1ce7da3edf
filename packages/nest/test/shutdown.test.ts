import "reflect-metadata";
import { Module } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { Engine, oneWay, service, unary } from "cinnabar/standard";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { CinnabarServer, CinnabarService, closeAppOnSignals } from "../src/index.ts";

const Slow = service("slow.v1", { slow: unary({ output: z.string() }), go: oneWay() });
let names = 0;

/** The hooks of an application in the order in which they ran, one call being in flight when it ends. */
async function orderOf(end: (app: { close(): Promise<void> }) => void | Promise<void>): Promise<string[]> {
  const order: string[] = [];
  let begun = () => {};
  const inFlight = new Promise<void>((resolve) => {
    begun = resolve;
  });
  let finish = () => {};
  @CinnabarService(Slow)
  class Controller {
    async slow() {
      await new Promise<void>((resolve) => {
        finish = resolve;
        begun();
      });
      order.push("call ends");
      return "whole";
    }
    go() {}
    onModuleDestroy() {
      order.push("onModuleDestroy");
    }
    beforeApplicationShutdown() {
      order.push("beforeApplicationShutdown");
    }
    onApplicationShutdown() {
      order.push("onApplicationShutdown");
    }
  }
  @Module({ controllers: [Controller] })
  class AppModule {}
  const url = `mem://nest-shutdown-${++names}`;
  const strategy = new CinnabarServer({ listen: url });
  const app = await NestFactory.createMicroservice(AppModule, { strategy, logger: false });
  await app.listen();
  const engine = await Engine.open();
  onTestFinished(() => engine.close());
  const answer = (await engine.connect(url)).client(Slow).slow();
  await inFlight;
  const closed = new Promise<void>((resolve) =>
    strategy.status.subscribe((s) => s === "closed" && resolve()),
  );
  const ending = end(app);
  await expect.poll(() => strategy.unwrap().state).toBe("draining");
  finish();
  expect(await answer).toBe("whole");
  await closed;
  await ending;
  await expect.poll(() => order).toContain("onApplicationShutdown");
  return order;
}

describe("an application that ends", () => {
  it("runs its hooks in the same order by close() and by a signal: calls in flight end first", async () => {
    const byClose = await orderOf((app) => app.close());
    const bySignal = await orderOf((app) => {
      const listeners = closeAppOnSignals(app, ["SIGUSR2"]);
      onTestFinished(() => listeners[Symbol.dispose]());
      process.kill(process.pid, "SIGUSR2");
    });
    expect(byClose).toEqual([
      "call ends",
      "onModuleDestroy",
      "beforeApplicationShutdown",
      "onApplicationShutdown",
    ]);
    expect(bySignal).toEqual(byClose);
  });

  it("stops listening to signals once it has closed, and when it is disposed of", async () => {
    const before = process.listenerCount("SIGUSR2");
    closeAppOnSignals({ close: async () => {} }, ["SIGUSR2"])[Symbol.dispose]();
    expect(process.listenerCount("SIGUSR2")).toBe(before);
    let signal: string | undefined;
    closeAppOnSignals(
      {
        close: async (by) => {
          signal = by;
        },
      },
      ["SIGUSR2"],
    );
    process.kill(process.pid, "SIGUSR2");
    await expect.poll(() => [signal, process.listenerCount("SIGUSR2")]).toEqual(["SIGUSR2", before]);
  });
});
