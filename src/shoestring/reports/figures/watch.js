"use strict";
(() => {
  let shownVersion = document.querySelector("main").dataset.version;
  const request = path => fetch(path + location.search, { cache: "no-store" });
  setInterval(async () => {
    try {
      const version = await (await request("/version")).text();
      if (version === shownVersion) return;
      const text = await (await request("/")).text();
      const fresh = new DOMParser().parseFromString(text, "text/html").querySelector("main");
      const main = document.querySelector("main");
      const open = new Set([...main.querySelectorAll("section:has(details[open])")].map(section => section.id));
      fresh.querySelectorAll("section:not(#trials)").forEach(section => {
        const details = section.querySelector("details");
        if (details && open.has(section.id)) details.open = true;
      });
      main.querySelectorAll("input:checked").forEach(chosen => {
        const same = chosen.defaultChecked ? null : fresh.querySelector("#" + CSS.escape(chosen.id));
        if (same) same.checked = true;
      });
      document.dispatchEvent(new Event("before-update"));
      main.replaceWith(fresh);
      document.dispatchEvent(new Event("after-update"));
      shownVersion = version;
    } catch {
      document.querySelector("#state").textContent = "the server has stopped";
    }
  }, 1000);
})();
