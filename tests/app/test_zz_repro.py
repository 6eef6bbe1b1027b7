import os, re, time, pytest
from tests.helpers.app_at_hand import served
from tests.helpers.browsing import chromium
RATE=[int(x) for x in os.environ.get("RATES","1,4,10").split(",")]
N=int(os.environ.get("N","12"))
def test_it(tiny_sdxl_folder, tiny_probe_folder):
    bad=0
    with served(tiny_sdxl_folder, tiny_probe_folder, "cat\ndog") as address, chromium() as b:
        for k in range(N):
            rate=RATE[k%len(RATE)]; width=(390,768,1440)[k%3]
            c=b.new_context(viewport={"width":width,"height":900},reduced_motion="reduce"); c.set_default_timeout(60000)
            p=c.new_page(); heard=[]; 
            p.on("console",lambda m:heard.append(m.text)); p.on("pageerror",lambda m:heard.append(str(m)))
            p.on("request",lambda r: heard.append(r.post_data) if "queue/join" in r.url else None)
            p.goto(address)
            p.get_by_text("No images are remembered").wait_for()
            c.new_cdp_session(p).send("Emulation.setCPUThrottlingRate",{"rate":rate})
            t=time.time()
            p.get_by_role("button", name="Expert settings").click()
            p.get_by_label(re.compile("Steps")).fill("100")
            v0=p.get_by_label(re.compile("Steps")).input_value()
            p.get_by_label(re.compile("Images")).first.fill("16")
            p.get_by_role("button", name="Generate").click()
            try:
                p.get_by_text(re.compile(r"guidance, step \d+ of 100")).first.wait_for(timeout=30000)
                print(k,rate,width,"ok %.1f"%(time.time()-t),flush=True)
            except Exception as e:
                bad+=1
                print(k,rate,width,"BAD",v0,p.get_by_label(re.compile("Steps")).input_value(),heard,"|",p.inner_text("body")[-1500:],"|",p.inner_html("#progress")[:1500],flush=True)
                p.screenshot(path=f"/tmp/stable/bad{k}.png",full_page=True)
            try:
                p.get_by_role("button", name="Stop").click(timeout=5000)
                p.get_by_text("Stopped: ").wait_for(timeout=30000)
            except Exception as e: print("stop:",str(e)[:200],flush=True)
            c.close()
    assert not bad
