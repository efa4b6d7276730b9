// Keeps the page as the server sees the store. All text was escaped there; nothing put in here can run.
"use strict";

const main = document.querySelector("main");
const lost = document.getElementById("lost");
const unfolded = new Set(); // names of what the reader has opened

function put(place, html) {
  const before = new Map(Array.from(place.querySelectorAll(".later"), (later) => [later.id, later.innerHTML]));
  place.innerHTML = html;
  for (const later of place.querySelectorAll(".later")) later.innerHTML = before.get(later.id) ?? "";
  for (const details of place.querySelectorAll("details[id]")) details.open = unfolded.has(details.id);
}

async function fill(details) {
  const place = details.querySelector(".later");
  try {
    const answer = await fetch(details.dataset.from);
    if (answer.ok) put(place, await answer.text());
    else place.textContent = "This is no longer there.";
  } catch {
    place.textContent = "The watcher does not answer.";
  }
}

document.addEventListener("toggle", ({ target: details }) => {
  if (!details.id) return;
  unfolded[details.open ? "add" : "delete"](details.id);
  if (details.open && details.dataset.from) fill(details);
}, true);

function reveal() { // a link to something folded opens it
  const target = document.getElementById(location.hash.slice(1));
  const details = target?.closest("details");
  if (!details) return;
  details.open = true;
  target.scrollIntoView();
}
addEventListener("hashchange", reveal);
reveal();

const source = new EventSource("events");
source.onopen = () => { lost.hidden = true; };
source.onerror = () => { lost.hidden = false; };
source.addEventListener("parts", ({ data }) => {
  const names = JSON.parse(data);
  for (const part of [...main.children]) if (!names.includes(part.id)) part.remove();
  for (const name of names) {
    let part = document.getElementById(name);
    if (!part) {
      part = document.createElement("section");
      part.id = name;
    }
    main.append(part); // in the server's order
  }
});
source.addEventListener("part", ({ data }) => {
  const { name, digest, html } = JSON.parse(data);
  const part = document.getElementById(name);
  if (part.dataset.digest === digest) return;
  put(part, html);
  part.dataset.digest = digest;
});
