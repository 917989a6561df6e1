// Asking again and again: every two seconds, never while nobody looks, and at once when somebody looks again.

const every = 2000 // milliseconds from an answer to the next question

/** tooOld is the age, in milliseconds, from which figures are not taken for those of now. */
export const tooOld = 3 * every

/**
 * follow calls ask, and tell with what it returned or threw, until stop; once tell returns false it waits for again. Once stopped, it
 * tells nothing more. again asks at once; an answer that was under way then is from before, so another question follows it.
 */
export function follow(ask, tell) {
  let timer, asking = false, wanted = false, resting = false, stopped = false
  async function turn() {
    clearTimeout(timer)
    if (stopped || asking || ((document.hidden || resting) && !wanted)) return
    asking = true
    wanted = false
    let answer = null, failure = null
    try {
      answer = await ask()
    } catch (error) {
      failure = error
    }
    asking = false
    if (stopped) return
    if (wanted) return void turn()
    resting = tell(answer, failure) === false
    if (!stopped && !resting) timer = setTimeout(turn, every)
  }
  document.addEventListener('visibilitychange', turn)
  turn()
  return {
    again() {
      wanted = true
      turn()
    },
    stop() {
      stopped = true
      clearTimeout(timer)
      document.removeEventListener('visibilitychange', turn)
    },
  }
}
