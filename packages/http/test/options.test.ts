import { bulk, clientStream, implement, service, unary } from "cinnabar";
import { expect, it } from "vitest";
import { z } from "zod";
import { type HttpOptions, httpHandler } from "../src/index.ts";
import { greeter } from "./services.test-support.ts";

const Others = service("others.v1", {
  sum: unary({ input: z.object({ numbers: bulk("read") }) }),
  tail: clientStream({ items: z.string() }),
});
const others = implement(Others, { sum() {}, tail() {} });
const { implementation } = greeter();

it.each<[Partial<HttpOptions>, string]>([
  [{ allow: [] }, "allow must be an array of at least 1 item"],
  [
    { allow: ["greeter.v1/gret"] },
    'allow names "greeter.v1/gret", which no service has; did you mean "greeter.v1/greet"?',
  ],
  [{ allow: ["others.v1/sum"] }, 'allow names "others.v1/sum", whose memory JSON cannot carry'],
  [
    { allow: ["others.v1/tail"], safe: ["others.v1/tail"] },
    'safe names "others.v1/tail", whose body GET cannot send',
  ],
  [{ safe: ["greeter.v1/ping"] }, 'safe names "greeter.v1/ping", which is not in allow'],
  [{ services: [implementation, implementation] }, 'services has the method "greeter.v1/greet" twice'],
  [{ services: [{} as never] }, "services[0] must be a result of implement(), or { service, peer }"],
  [{ prefix: "/api/" }, 'prefix must be a path such as "/api", without a slash at its end'],
  [{ requestHeaders: ["Authorization"] }, "requestHeaders[0] must be the name of a header in lower case"],
  [
    { cors: { origins: ["app.example"] } },
    'cors.origins must be origins such as "https://app.example.com", or "*"',
  ],
  [{ cors: { origins: "*", credentials: true } }, 'cors: credentials need named origins; origins is "*"'],
  [{ limits: { maxJsonDepth: 0 } }, "limits.maxJsonDepth"],
  [{ port: 80 } as never, 'unknown option "port"'],
])("refuses %j", (options, complaint) => {
  const given = { services: [implementation, others], allow: ["greeter.v1/greet"], ...options };
  expect(() => httpHandler(given)).toThrow(complaint);
});
