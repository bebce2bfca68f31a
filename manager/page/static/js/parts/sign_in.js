/** What is seen in place of every page while the manager wants a token. The address stays, so the page comes after it. */
import { html, useEffect, useRef, useState } from "../h.js";
import { signIn } from "../session.js";

export function SignIn() {
  const field = useRef();
  const [trouble, setTrouble] = useState(null);
  const [isAsking, setAsking] = useState(false);
  useEffect(() => {
    document.title = "Sign in · cwdp";
    field.current.focus();
  }, []);

  async function submit(event) {
    event.preventDefault();
    setAsking(true);
    const refusal = await signIn(field.current.value.trim());
    if (!refusal) return;
    setAsking(false);
    setTrouble(refusal);
    field.current.select();
  }

  return html`<main id="main" tabindex="-1">
    <section class="panel trouble">
      <h1>Sign in</h1>
      <form class="sign-in" onSubmit=${submit}>
        <label for="token">Token</label>
        <input id="token" ref=${field} type="password" autocomplete="current-password" required spellcheck=${false} aria-describedby="how" />
        <button type="submit" disabled=${isAsking}>Sign in</button>
      </form>
      <div role="alert">${trouble && html`<p>${trouble.error}.</p><p>${trouble.hint}.</p>`}</div>
      <p id="how" class="note">An administrator makes one: <code>cwdp fleet token NAME --role viewer</code></p>
    </section>
  </main>`;
}
