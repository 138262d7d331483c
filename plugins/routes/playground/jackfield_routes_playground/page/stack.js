// The panel of the active stack: which plugin serves each seam, and why.

import { byId, element } from "./elements.js";
import { get } from "./server.js";

export async function showStack() {
  const place = byId("stack");
  try {
    const { version, stack } = await get("/plugins");
    const rows = stack.plugins.flatMap(({ kind, name, instance, phases, version: of, reason }) => [
      element("dt", { text: phases.length ? `${kind} (${phases.join(", ")})` : kind }),
      element("dd", { title: reason }, [
        instance === name ? name : `${instance} (${name})`,
        ` ${of ?? ""}`,
        element("small", { text: reason }),
      ]),
    ]);
    place.replaceChildren(
      element("div", { className: "hash", text: `Jackfield ${version} · ${stack.hash.slice(0, 12)} · epoch ${stack.epoch}` }),
      element("dl", {}, rows),
    );
  } catch (error) {
    place.replaceChildren(element("p", { className: "problem", text: error.message }));
  }
}
