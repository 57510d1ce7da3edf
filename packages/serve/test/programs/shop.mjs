// An application for tests of `cinnabar serve`: a service whose call is in flight when the process ends.
import { Engine, implement, service, unary } from "cinnabar/standard";
import { application, component } from "cinnabar-serve";

const Slow = service("slow.v1", { slow: unary() });

const client = component({
  async start() {
    const engine = await Engine.open();
    return { value: engine, stop: () => engine.close() };
  },
});
const server = component({
  needs: { client },
  async start({ needs }) {
    const implementation = implement(Slow, {
      slow: () => new Promise((resolve) => setTimeout(resolve, 300)),
    });
    const engine = await Engine.open({ listen: "mem://shop", serve: [implementation] });
    const call = (await needs.client.connect("mem://shop")).client(Slow).slow();
    call.then(
      () => console.log("the call has ended well"),
      () => console.log("the call was cut"),
    );
    return { value: engine, drain: (graceMs) => engine.drain({ graceMs }), stop: () => engine.close() };
  },
});

export default application("shop", { server, client });
