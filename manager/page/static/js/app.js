/** Put the page together: the frame, and the view that the address names. */
import { html, render, useEffect, useRef } from "./h.js";
import * as keys from "./keys.js";
import { Header, Verdict } from "./parts/header.js";
import { Help } from "./parts/help.js";
import { Replay } from "./parts/replay.js";
import { SignIn } from "./parts/sign_in.js";
import { Trouble } from "./parts/trouble.js";
import { PAGES, route } from "./routes.js";
import * as session from "./session.js";
import { useStore } from "./store.js";
import * as stream from "./stream.js";
import * as theme from "./theme.js";
import { Audit } from "./views/audit.js";
import { Clocks } from "./views/clocks.js";
import { Events } from "./views/events.js";
import { Fleet } from "./views/fleet.js";
import { Host } from "./views/host.js";
import { Iterations } from "./views/iterations.js";
import { Job } from "./views/job.js";
import { Jobs } from "./views/jobs.js";
import { Leaf } from "./views/leaf.js";
import { Link } from "./views/link.js";
import { FabricMap } from "./views/map.js";
import { Qp } from "./views/qp.js";

const VIEWS = { fleet: Fleet, map: FabricMap, leaf: Leaf, link: Link, qp: Qp, jobs: Jobs, job: Job, iterations: Iterations, clocks: Clocks, events: Events, audit: Audit, host: Host };

function App() {
  return useStore(session.isOut) ? html`<${SignIn} />` : html`<${Page} />`;
}

function Page() {
  const { page, params, trouble } = useStore(route);
  const field = useRef();
  const help = useRef();
  const open = { search: () => field.current.focus(), help: () => help.current.showModal() };
  useEffect(() => keys.start(open), []);
  useEffect(() => {
    document.title = trouble ? "cwdp" : `${titleOf(page, params)} · cwdp`;
  }, [page, params, trouble]);
  const subject = trouble ? page : [page, ...PAGES[page].needs.map((name) => params[name]), params.peer ?? ""].join(" ");
  useEffect(() => window.scrollTo(0, 0), [subject]);
  return html`
    <${Header} field=${field} help=${open.help} />
    <${Verdict} />
    <main id="main" tabindex="-1">
      <h1 class="unseen">${trouble ? "No such page" : titleOf(page, params)}</h1>
      ${trouble
        ? html`<${Trouble} title=${trouble} hint="The address may have been cut or mistyped." at=${params.at} />`
        : html`<${VIEWS[page]} key=${subject} params=${params} />`}
    </main>
    <${Replay} />
    <${Help} box=${help} />`;
}

function titleOf(page, params) {
  return [PAGES[page].title, params.name ?? params.a ?? params.host, params.peer ?? params.b].filter(Boolean).join(" ");
}

theme.start();
stream.start();
session.look();
render(html`<${App} />`, document.getElementById("app"));
