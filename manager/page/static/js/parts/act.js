/** What to do: commands to copy, and steps. This page itself changes nothing. */
import { html, useState } from "../h.js";

/** A command with a button that copies it. */
export function Command({ text }) {
  const [said, setSaid] = useState("copy");
  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
      setSaid("copied");
    } catch {
      setSaid("select it by hand");
    }
    setTimeout(() => setSaid("copy"), 2000);
  }
  return html`<span class="command">
    <code>${text.split(" ").map((word, i) => html`${i > 0 && " "}<span key=${i}>${word}</span>`)}</code>
    <button type="button" onClick=${copy} aria-label=${`copy the command ${text}`}>${said}</button>
  </span>`;
}

/** The steps of one finding, or of a page less those that its findings name. */
export function Steps({ of, findings = [] }) {
  const named = findings.flatMap((finding) => finding.act ?? []);
  const steps = (of ?? []).filter((step) => !named.some((each) => each.text === step.text && each.command === step.command));
  if (!steps.length) return null;
  return html`<ul class="steps">
    ${steps.map((step, i) => html`<li key=${i}>${step.text}${step.command && html` <${Command} text=${step.command} />`}</li>`)}
  </ul>`;
}
