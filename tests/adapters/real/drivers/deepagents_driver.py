"""deepagents: the middleware in the place of its own summariser."""

from deepagents import create_deep_agent
from langchain_driver import OWN_FORMS, SYSTEM, read_part, same, samples, stored, text_of, translation
from langchain_driver import Driver as LangChainDriver

from foldline.adapters.langchain import DEEP_AGENTS, FoldlineMiddleware

__all__ = ["OWN_FORMS", "Driver", "same", "samples", "stored", "text_of", "translation"]


class Driver(LangChainDriver):
    def made_middleware(self, window):
        return FoldlineMiddleware(name=DEEP_AGENTS, window=window)

    def agent(self, saver):
        return create_deep_agent(
            model=self.model, tools=[read_part], system_prompt=SYSTEM, middleware=[self.middleware], checkpointer=saver
        )
