// Elements with text in them. Whatever comes from a model or a server goes through here, and only ever as text.

export const byId = (id) => document.getElementById(id);

export function element(name, { className = "", text = null, ...more } = {}, children = []) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== null) made.textContent = text;
  for (const [property, value] of Object.entries(more)) made[property] = value;
  made.append(...children);
  return made;
}
