"use strict";
// Filters. What is chosen stands in the address, so that a link or a bookmark shows the same; without script, all is shown.
const form = document.getElementById("filters");
const fields = { task: form.elements.task, agent: form.elements.agent };

function show(elements, isShown) {
  let shown = 0;
  for (const element of elements) {
    element.hidden = !isShown(element);
    shown += !element.hidden;
  }
  return shown;
}

function apply() {
  const task = fields.task.value;
  const words = fields.agent.value.trim().toLowerCase();
  const ofTasks = document.querySelectorAll("[data-tasks]");
  const agents = document.querySelectorAll("[data-agent]");
  show(ofTasks, (element) => !task || element.dataset.tasks.split(" ").includes(task));
  const shown = show(agents, (element) => element.dataset.agent.toLowerCase().includes(words));
  const chosen = task ? fields.task.selectedOptions[0].textContent : "all tasks";
  document.getElementById("shown").textContent = `Shown: ${chosen}; ${shown} of ${agents.length} lines about agents.`;
}

function remember() {
  const chosen = new URLSearchParams(Object.entries(fields).map(([name, field]) => [name, field.value]).filter(([, value]) => value));
  history.replaceState(null, "", "#" + chosen);
}

function recall() {
  const chosen = new URLSearchParams(location.hash.slice(1));
  for (const [name, field] of Object.entries(fields)) {
    field.value = chosen.get(name) ?? "";
    if (field.value === "") field.value = ""; // of a task that is not there the form would show nothing
  }
  apply();
}

form.hidden = false;
form.addEventListener("input", () => { apply(); remember(); });
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("reset", () => setTimeout(() => { apply(); remember(); }));
window.addEventListener("hashchange", recall);
recall();
