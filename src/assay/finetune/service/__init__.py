"""The local service: OpenAI's files, fine_tuning.jobs and chat APIs for local models.

    with running(FinetuneServerSettings(port=0)) as service:
        OpenAI(base_url=service.base_url, api_key="none").fine_tuning.jobs.list()

Needs the extra `local`.
"""
