// For the installed package cinnabar-nest: a controller of a contract answers a client of Cinnabar.
import "reflect-metadata";
import assert from "node:assert/strict";
import { Module } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { Engine, service, unary } from "cinnabar/standard";
import { CinnabarServer, CinnabarService } from "cinnabar-nest";

const Hello = service("hello.v1", { hello: unary() });
class Controller {
  calls = 0;
  hello() {
    this.calls++;
  }
}
CinnabarService(Hello)(Controller);
class AppModule {}
Module({ controllers: [Controller] })(AppModule);
const strategy = new CinnabarServer({ listen: "mem://nest" });
const app = await NestFactory.createMicroservice(AppModule, { strategy, logger: false });
await app.listen();
const engine = await Engine.open();
await (await engine.connect("mem://nest")).client(Hello).hello();
assert.equal(app.get(Controller).calls, 1);
await engine.close();
await app.close();
console.log("cinnabar-nest works");
